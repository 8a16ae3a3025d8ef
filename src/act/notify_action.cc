#include "act/notify_action.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "act/notify.h"
#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kOneTry = 10s;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? printable(name.data()) : "?";
}

std::string seconds(Duration time) {
  return std::to_string(std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(time).count()));
}

// What curl said last, without the address should it be in there.
std::string trouble_of(const HelperResult& result, const std::string& address) {
  const std::string_view all = trim(result.output);
  std::string said(all.substr(all.rfind('\n') + 1));  // npos + 1 is 0
  for (std::size_t at = said.find(address); at != std::string::npos; at = said.find(address))
    said.replace(at, address.size(), "…");
  return said.empty() || result.timed_out ? result.trouble : printable(said);
}

}  // namespace

Result<> SendNotification::prepare() {
  if (!is_executable("curl")) return fail("notify needs curl, which is not in PATH");
  TRY(address_of(to_));
  return {};
}

void SendNotification::start(const FiringFacts& facts, Done done, Tell /*tell*/) {
  const auto address = address_of(to_);
  if (!address) return done({false, address.error().message()});
  // No .curlrc: it may ask for a trace of all that is sent. No redirect is followed: the address is who we trust.
  std::vector<std::string> command = {"curl",
                                      "-q",
                                      "--config",
                                      "-",
                                      "--fail",
                                      "--silent",
                                      "--show-error",
                                      "--proto",
                                      "=http,https",
                                      "--max-time",
                                      seconds(std::min(kOneTry, options_.limit)),
                                      "--output",
                                      "/dev/null"};
  if (options_.retries > 0)
    command.insert(command.end(),
                   {"--retry", std::to_string(options_.retries), "--retry-delay", seconds(options_.retry_after),
                    "--retry-max-time", seconds(options_.limit), "--retry-connrefused"});
  tools_.helpers.run({.arguments = std::move(command),
                      .input = curl_config(*address, message_for(service_of(to_, *address), facts, host_name())),
                      .limit = options_.limit,
                      .capture = true,
                      .quiet = true,
                      .signals = &tools_.signals},
                     [done = std::move(done), address = *address](const HelperResult& result) {
                       done({result.ok(), result.ok() ? "" : trouble_of(result, address)});
                     });
}

}  // namespace lull
