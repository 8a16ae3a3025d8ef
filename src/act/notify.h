#pragma once
// `notify`: sends a message that a rule has fired, in the format that Slack, Discord, Teams and ntfy take, or as the
// facts in JSON for any other web hook. Everyone who knows the address can write there, so it comes from a file or a
// variable, goes to curl on its stdin, and is never shown. curl is what every machine has that can speak https; it
// costs nothing until it is needed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "act/facts.h"
#include "base/result.h"

namespace lull {

enum class Service : std::uint8_t { slack, discord, teams, ntfy, webhook };
std::optional<Service> service_called(std::string_view name);
std::string_view name_of(Service service);

// Where notifications go: as `notify=…` says it, or the settings.
struct NotifyTo {
  enum class From : std::uint8_t { nowhere, file, variable, written };
  From from = From::nowhere;
  std::string place;                    // path, name of a variable, or the address
  std::optional<Service> service = {};  // else by the address
};
// [SERVICE:]file:PATH, [SERVICE:]variable:NAME, [SERVICE:]ADDRESS, SERVICE, or nothing: as the settings say.
Result<NotifyTo> parse_notify(std::string_view argument);
// What may be shown of it: "file:/etc/lull/slack", "https://hooks.slack.com/…".
std::string to_string(const NotifyTo& to);

// The address itself, found now: a file may be changed while we watch.
Result<std::string> address_of(const NotifyTo& to);
Service service_of(const NotifyTo& to, std::string_view address);

// One message to a service: what curl is told on its stdin.
struct Message {
  std::string content_type;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};
Message message_for(Service service, const FiringFacts& facts, std::string_view host);
std::string curl_config(std::string_view address, const Message& message);

// `mail`: tells the users of a job, or the recipients of `mail=ADDRESS`, that a rule has fired: host, job, rule, GPUs,
// since when, what comes next and how to ask for more time, with a picture of the readings. Sent by the machine's own
// sendmail, else by `mail`, which takes no picture.

// What follows `mail=`: addresses with commas between them. Nothing: the users of the job.
Result<std::vector<std::string>> parse_mail(std::string_view argument);
// The recipients. A name that could be anything else than one address is refused.
Result<std::vector<std::string>> recipients_of(const std::vector<std::string>& addresses, const FiringFacts& facts);

std::string mail_subject(const FiringFacts& facts, std::string_view host);
std::string mail_text(const FiringFacts& facts, std::string_view host);
// As `sendmail -t` takes it, with the picture (may be empty) as an attachment.
std::string mail_message(const std::vector<std::string>& to, const FiringFacts& facts, std::string_view host,
                         const std::string& picture);

// The command that sends a message from its stdin; `whole`: with its headers (sendmail), else only the text.
struct Mailer {
  std::vector<std::string> command;
  bool whole = true;
};
Result<Mailer> find_mailer();

}  // namespace lull
