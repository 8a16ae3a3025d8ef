#pragma once
// What was observed as JSON: by the names and in the form that the commands' --json have, where there is such a
// command.

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "serve/observer.h"
#include "view/jobs.h"

namespace lull {

Result<std::string> api_leases_json(const Observer& observer);
// Util of each GPU over the last hour, in slices; null: not seen.
std::string recent_json(const Observer& observer, Instant now);
std::string error_json(const std::string& what);

// All that the page shows, as one server-sent event. Where the observer is not up it says so, and nothing else.
// `jobs`: what `lull jobs` shows. `keep`: whether time can be asked for.
std::string now_event(const Observer& observer, Instant now, Duration every, const JobsView& jobs, bool keep);

}  // namespace lull
