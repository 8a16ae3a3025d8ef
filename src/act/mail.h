#pragma once
// `mail`: tells the users of a job, or whom `mail=ADDRESS` names, that a rule has fired: host, job, rule, GPUs, since
// when, what comes next and how to ask for more time, with a picture of the readings. Sent by the machine's own
// sendmail, else by `mail`, which takes no picture.

#include <string>
#include <string_view>
#include <vector>

#include "act/facts.h"
#include "base/result.h"

namespace lull {

// What follows `mail=`: addresses with commas between them. Nothing: the users of the job.
Result<std::vector<std::string>> parse_mail(std::string_view argument);
// For whom it is. A name that could be anything else than one address is refused.
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
