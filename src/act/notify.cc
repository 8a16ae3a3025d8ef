#include "act/notify.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "act/spawn.h"
#include "base/calendar.h"
#include "base/curl.h"
#include "base/fd.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::array<std::pair<std::string_view, Service>, 5> kServiceNames = {{{"slack", Service::slack},
                                                                                {"discord", Service::discord},
                                                                                {"teams", Service::teams},
                                                                                {"ntfy", Service::ntfy},
                                                                                {"webhook", Service::webhook}}};
constexpr std::size_t kLongestAddress = 4096;
constexpr std::size_t kMostDiscord = 2000;  // characters of a message; more is refused
constexpr std::size_t kMostNtfy = 4096;     // bytes; more becomes an attachment

bool is_address(std::string_view text) { return text.starts_with("http://") || text.starts_with("https://"); }

std::string_view host_of(std::string_view address) {
  address.remove_prefix(std::min(address.size(), address.find("://") + 3));
  address = address.substr(0, address.find_first_of("/?#"));
  const std::size_t at = address.rfind('@');  // a name and a password may stand before it
  return at == std::string_view::npos ? address : address.substr(at + 1);
}

// Not longer than so many bytes, and no character cut in two.
std::string cut(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string gpu_text(const FiringFacts& facts) {
  if (!facts.subject.empty()) return facts.subject;
  return facts.why.gpus.empty()
             ? ""
             : fmt::format("GPU{} {}", facts.why.gpus.size() == 1 ? "" : "s", fmt::join(facts.why.gpus, ", "));
}

std::string title_of(const FiringFacts& facts, std::string_view host) {
  const std::string what = gpu_text(facts);
  return fmt::format("lull on {}: {}", host, what.empty() ? facts.event : what + " " + facts.event);
}

std::string text_of(const FiringFacts& facts) {
  std::string text = headline(facts.why);
  if (!facts.holders.empty()) text += "\nheld by " + holders_text(facts);
  if (!facts.evidence.empty()) text += "\nevidence: " + printable(facts.evidence);
  if (const std::string next = next_of(facts); !next.empty()) text += "\nnext: " + next;
  return text + "\nmore time: " + more_time_of(facts);
}

// In Slack's text these three begin a command or a link.
std::string for_slack(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  return out;
}

std::string teams_card(const std::string& title, const std::string& text) {
  JsonWriter json;
  json.begin_object().member("type", "message").key("attachments").begin_array().begin_object();
  json.member("contentType", "application/vnd.microsoft.card.adaptive").key("content").begin_object();
  json.member("$schema", "http://adaptivecards.io/schemas/adaptive-card.json").member("type", "AdaptiveCard");
  json.member("version", "1.4").key("body").begin_array();
  json.begin_object().member("type", "TextBlock").member("text", title).member("weight", "Bolder").member("wrap", true);
  json.end_object();
  for (const std::string_view line : split(text, '\n'))
    json.begin_object().member("type", "TextBlock").member("text", line).member("wrap", true).end_object();
  return json.end_array().end_object().end_object().end_array().end_object().take();
}

}  // namespace

std::optional<Service> service_called(std::string_view name) {
  for (const auto& [known, service] : kServiceNames)
    if (known == name) return service;
  return std::nullopt;
}

std::string_view name_of(Service service) { return kServiceNames[static_cast<std::size_t>(service)].first; }

Result<NotifyTo> parse_notify(std::string_view argument) {
  NotifyTo to;
  std::string_view rest = argument;
  if (const std::size_t colon = rest.find(':'); !is_address(rest)) {
    to.service = service_called(rest.substr(0, colon));
    if (to.service) rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  const auto take = [&](std::string_view word, NotifyTo::From from) {
    if (!rest.starts_with(word) || rest.size() == word.size()) return false;
    to.from = from;
    to.place = rest.substr(word.size());
    return true;
  };
  if (rest.empty() || take("file:", NotifyTo::From::file) || take("variable:", NotifyTo::From::variable)) return to;
  if (is_address(rest)) {
    to.from = NotifyTo::From::written;
    to.place = rest;
    return to;
  }
  // What was written may be a secret with a slip in it.
  return fail(
      "notify= takes slack, discord, teams, ntfy or webhook, file:PATH or variable:NAME with the address, or an "
      "http:// "
      "or https:// address");
}

std::string to_string(const NotifyTo& to) {
  const std::string service = to.service ? std::string(name_of(*to.service)) : "";
  const std::string before = service.empty() ? "" : service + ":";
  switch (to.from) {
    case NotifyTo::From::nowhere: return service;
    case NotifyTo::From::file: return before + "file:" + printable(to.place);
    case NotifyTo::From::variable: return before + "variable:" + printable(to.place);
    case NotifyTo::From::written: break;
  }
  return before + std::string(to.place.starts_with("https") ? "https" : "http") + "://" + printable(host_of(to.place)) +
         "/…";
}

Result<std::string> address_of(const NotifyTo& to) {
  std::string address;
  std::string where;
  switch (to.from) {
    case NotifyTo::From::nowhere:
      return fail(
          "notify needs an address: [notify] address_file in lull.toml, the variable LULL_NOTIFY_ADDRESS, or "
          "notify=file:PATH");
    case NotifyTo::From::file: {
      where = printable(to.place);
      const auto handle = open_file(to.place, O_PATH);  // a FIFO would wait for a writer
      if (!handle) return fail(handle.error().errno_value, "notify: " + where);
      struct stat status{};
      if (::fstat(handle->get(), &status) != 0) return fail(errno, "notify: " + where);
      if (!S_ISREG(status.st_mode)) return fail("notify: " + where + " is not a regular file");
      auto text = read_file(AT_FDCWD, fmt::format("/proc/self/fd/{}", handle->get()), kLongestAddress + 1);
      if (!text) return fail(text.error().errno_value, "notify: " + where);
      address = std::string(trim(std::string_view(*text).substr(0, text->find('\n'))));
      break;
    }
    case NotifyTo::From::variable: {
      where = "the variable " + printable(to.place);
      const char* value = std::getenv(to.place.c_str());
      address = value == nullptr ? "" : std::string(trim(value));
      if (address.empty()) return fail("notify: " + where + " is not set");
      break;
    }
    case NotifyTo::From::written:
      where = "it";
      address = to.place;
      break;
  }
  const bool plain = std::ranges::all_of(address, [](unsigned char c) { return c > 0x20 && c != 0x7F; });
  if (!is_address(address) || !plain || address.size() > kLongestAddress)
    return fail("notify: " + where + " holds no http:// or https:// address");
  return address;
}

Service service_of(const NotifyTo& to, std::string_view address) {
  if (to.service) return *to.service;
  std::string_view host = host_of(address);
  host = host.substr(0, host.find(':'));  // without a port
  if (host == "hooks.slack.com") return Service::slack;
  if (host == "discord.com" || host == "discordapp.com") return Service::discord;
  if (host.ends_with(".webhook.office.com") || host.ends_with(".logic.azure.com") ||
      host.ends_with(".api.powerplatform.com"))
    return Service::teams;
  return host == "ntfy.sh" ? Service::ntfy : Service::webhook;
}

Message message_for(Service service, const FiringFacts& facts, std::string_view host) {
  const std::string title = title_of(facts, host);
  const std::string text = text_of(facts);
  Message message{.content_type = "application/json", .body = {}};
  switch (service) {
    case Service::slack:
      message.body = JsonWriter().begin_object().member("text", for_slack(title + "\n" + text)).end_object().take();
      break;
    case Service::discord: {
      JsonWriter json;
      json.begin_object().member("content", cut(title + "\n" + text, kMostDiscord));
      // A process may be called @everyone.
      json.key("allowed_mentions").begin_object().key("parse").begin_array().end_array().end_object();
      message.body = json.end_object().take();
      break;
    }
    case Service::teams: message.body = teams_card(title, text); break;
    case Service::ntfy:
      message.content_type = "text/plain; charset=utf-8";
      message.headers = {{"Title", title}, {"Tags", "zzz"}};
      message.body = cut(text, kMostNtfy);
      break;
    case Service::webhook: message.body = facts_json(facts); break;
  }
  return message;
}

std::string curl_config(std::string_view address, const Message& message) {
  std::string config = "url = " + curl_quoted(address) + "\n";
  config += "header = " + curl_quoted("Content-Type: " + message.content_type) + "\n";
  for (const auto& [name, value] : message.headers)
    config += "header = " + curl_quoted(name + ": " + printable(value)) + "\n";
  return config + "data-raw = " + curl_quoted(message.body) + "\n";
}

namespace {

constexpr std::size_t kMostRecipients = 16;
constexpr std::size_t kLongestRecipient = 254;
constexpr std::size_t kLongestLine = 900;  // of a mail: 998 bytes

// One address and nothing else: no option, no second address, no line break.
bool is_recipient(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._+-@").contains(static_cast<char>(c));
  };
  return !text.empty() && text.size() <= kLongestRecipient && text.front() != '-' && text.front() != '@' &&
         std::ranges::count(text, '@') <= 1 && text.back() != '@' && std::ranges::all_of(text, plain);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kLetters[group >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

// In lines of 76, as a mail has them.
std::string base64_lines(std::string_view bytes) {
  const std::string all = base64(bytes);
  std::string out;
  for (std::size_t at = 0; at < all.size(); at += 76) out += all.substr(at, 76) + "\n";
  return out;
}

// The value of a header: what is no ASCII is encoded, in words of at most 75 letters.
std::string for_header(const std::string& text) {
  if (std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c < 0x7F; })) return text;
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    std::size_t end = std::min<std::size_t>(rest.size(), 42);
    while (end < rest.size() && end > 0 && (static_cast<unsigned char>(rest[end]) & 0xC0U) == 0x80U) --end;
    out += (out.empty() ? "=?UTF-8?B?" : "\n =?UTF-8?B?") + base64(rest.substr(0, end)) + "?=";
    rest.remove_prefix(end);
  }
  return out;
}

std::string line(std::string_view name, std::string_view value) {
  if (value.empty()) return "";
  const std::string text = printable(value);
  return fmt::format("{:<11} {}\n", name, std::string_view(text).substr(0, kLongestLine));
}

}  // namespace

Result<std::vector<std::string>> parse_mail(std::string_view argument) {
  std::vector<std::string> all;
  if (argument.empty()) return all;
  for (const std::string_view one : split(argument, ',')) {
    if (!is_recipient(trim(one)))
      return fail(fmt::format("mail={} is not an address, such as mail=admin@example.org", printable(argument)));
    all.emplace_back(trim(one));
  }
  if (all.size() > kMostRecipients) return fail(fmt::format("mail= takes {} addresses at most", kMostRecipients));
  return all;
}

Result<std::vector<std::string>> recipients_of(const std::vector<std::string>& addresses, const FiringFacts& facts) {
  if (!addresses.empty()) return addresses;
  std::vector<std::string> all;
  for (const std::string& user : facts.users)
    if (is_recipient(user) && all.size() < kMostRecipients) all.push_back(user);
  if (!all.empty()) return all;
  if (!facts.users.empty()) return fail(fmt::format("no mail can go to a user called '{}'", printable(facts.users[0])));
  return fail("there is no user to write to");
}

std::string mail_subject(const FiringFacts& facts, std::string_view host) {
  const std::string what = !facts.job_name.empty() ? facts.job_name
                           : facts.subject.empty() ? labels(facts.scope)
                                                   : facts.subject;
  return printable(fmt::format("lull: {} on {} is {}", what, host, facts.event));
}

std::string mail_text(const FiringFacts& facts, std::string_view host) {
  std::string text = line("Host:", host);
  text += line("Job:", facts.subject.empty() ? facts.job_name : facts.subject);
  text += line("Rule:", facts.why.rule);
  text += line("GPUs:", fmt::format("{}", fmt::join(facts.why.gpus, ", ")));
  text += line("Since:", fmt::format("{}, for {}", format_local(facts.why.since, "%F %H:%M:%S %z"),
                                     format_duration(std::chrono::floor<std::chrono::seconds>(facts.why.held))));
  text += line("Processes:", holders_text(facts));
  text += line("Evidence:", facts.evidence);
  text += line("Next:", next_of(facts));
  text += line("More time:", facts.keep.empty() ? more_time_of(facts) : facts.keep);
  return text;
}

std::string mail_message(const std::vector<std::string>& to, const FiringFacts& facts, std::string_view host,
                         const std::string& picture) {
  std::string message = fmt::format("To: {}\nSubject: {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n",
                                    fmt::join(to, ", "), for_header(mail_subject(facts, host)));
  const std::string text_part =
      "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n" + mail_text(facts, host);
  if (picture.empty()) return message + text_part;
  const std::string boundary = fmt::format("lull-{:016x}{:016x}", random_bits(), random_bits());
  message += fmt::format("Content-Type: multipart/mixed; boundary=\"{0}\"\n\n--{0}\n{1}\n--{0}\n", boundary, text_part);
  message +=
      "Content-Type: image/svg+xml; name=\"utilisation.svg\"\nContent-Transfer-Encoding: base64\n"
      "Content-Disposition: attachment; filename=\"utilisation.svg\"\n\n";
  return message + base64_lines(picture) + "--" + boundary + "--\n";
}

Result<Mailer> find_mailer() {
  for (const char* program : {"sendmail", "/usr/sbin/sendmail", "/usr/lib/sendmail"})
    if (is_executable(program)) return Mailer{.command = {program, "-t", "-i"}};
  if (is_executable("mail")) return Mailer{.command = {"mail"}, .whole = false};
  return fail("mail needs sendmail or mail, and neither is here");
}

}  // namespace lull
