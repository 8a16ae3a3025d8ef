#include "serve/api.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "base/host.h"
#include "base/json_writer.h"
#include "lease/folder.h"
#include "view/leases.h"
#include "view/status.h"

namespace lull {
namespace {

std::string_view name_of(Use use) {
  switch (use) {
    case Use::busy: return "busy";
    case Use::held_idle: return "held idle";
    case Use::filled: return "filled";
    case Use::free: return "free";
    case Use::unknown: break;
  }
  return "unknown";
}

// The lines of an event may not hold a line end: JSON on one line does not.
std::string event(std::string_view json) { return fmt::format("event: now\ndata: {}\n\n", json); }

}  // namespace

std::string error_json(const std::string& what) {
  return JsonWriter().begin_object().member("error", what).end_object().take() + "\n";
}

Result<std::string> api_leases_json(const Observer& observer) {
  return leases_json(TRY(observer.leases()), LeasePlace::of_environment().path) + "\n";
}

std::string recent_json(const Observer& observer, Instant now) {
  JsonWriter json;
  json.begin_object().member("slice_seconds", in_seconds(LastHour::kSlice));
  json.member("slices", LastHour::kSlices).key("gpus").begin_array();
  for (const Device& device : observer.snapshot().inventory->devices) {
    json.begin_object().member("gpu", device.label()).member_or_null("uuid", device.uuid);
    json.key("util_percent").begin_array();
    for (const float value : observer.last_hour(device, now))
      std::isnan(value) ? json.null() : json.value(std::round(static_cast<double>(value)));
    json.end_array().end_object();
  }
  return json.end_array().end_object().take() + "\n";
}

std::string now_event(const Observer& observer, Instant now, Duration every, const JobsView& jobs, bool keep) {
  JsonWriter json;
  const bool up = observer.is_up(now);
  json.begin_object().member("up", up).member("host", host_name()).member("every_seconds", in_seconds(every));
  if (!up) return event(json.member("error", observer.trouble(now)).end_object().take());
  const StatusView view = observer.status();
  json.member("summary", status_summary(view)).key("uses").begin_array();
  for (std::size_t row = 0; row < view.devices.size(); ++row)
    json.value(name_of(use_of(view.snapshot.inventory->devices[row], view.snapshot.readings[row], view.extras[row])));
  json.end_array().key("status").raw(status_json(view, -1)).key("jobs");
  put_jobs(json, jobs);
  json.member("keep", keep);
  // Who waits for a GPU. Nothing: that cannot be read now.
  if (const auto leases = observer.leases()) {
    json.key("queue");
    put_queue(json, leases->state);
  } else {
    json.key("queue").null();
  }
  return event(json.end_object().take());
}

}  // namespace lull
