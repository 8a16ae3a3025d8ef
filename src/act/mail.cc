#include "act/mail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "act/spawn.h"
#include "base/calendar.h"
#include "base/random.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
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
      return fail(fmt::format("mail={} is no address, such as mail=admin@example.org", printable(argument)));
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
  return fail("there is nobody to write to: no user has it");
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
