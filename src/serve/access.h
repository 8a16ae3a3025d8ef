#pragma once
// Who may ask: the tokens of --token-file, and what a request says of itself. All of it is text from outside.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

class Tokens {
 public:
  static constexpr std::size_t kShortest = 16;

  // One token a line; blank lines and those that begin with # do not count.
  static Result<Tokens> parse(std::string_view text);
  // Of a file that is nobody's but ours, or root's.
  static Result<Tokens> read(const std::string& path);

  bool empty() const { return all_.empty(); }
  // Whether the value of an Authorization header has one of them: "Bearer TOKEN", or "Basic …" with it as the password.
  bool allow(std::string_view authorization) const;

 private:
  std::vector<std::string> all_;
};

// What `Basic` credentials hold: "user:password". Nothing: that is no base64.
std::optional<std::string> decode_base64(std::string_view text);

// Whether a Host header names an address or localhost. A page of somebody else's that has its own name point here
// (DNS rebinding) sends that name.
bool names_no_other_site(std::string_view host);

}  // namespace lull
