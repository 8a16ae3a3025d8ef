#pragma once
// Who may ask: the tokens of --token-file, and what a request says of itself. All of it is text from outside.

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

class Tokens {
 public:
  static constexpr std::size_t kShortest = 16;

  // One token a line, before it the user whose it is, where it is one's; blank lines and those that begin with # do not
  // count.
  static Result<Tokens> parse(std::string_view text);
  // Of a file that belongs to us or root.
  static Result<Tokens> read(const std::string& path);

  bool empty() const { return all_.empty(); }
  // Whether the value of an Authorization header has one of them: "Bearer TOKEN", or "Basic …" with it as the password.
  bool allow(std::string_view authorization) const;
  // The token's user. Nothing: it has no user, or is not in the file.
  std::optional<uid_t> user_of(std::string_view authorization) const;

 private:
  struct Token {
    std::string text;
    std::optional<uid_t> user = {};
  };
  const Token* find(std::string_view authorization) const;

  std::vector<Token> all_;
};

// What a browser sends with a request that changes something. One that a page of another site makes it send is refused:
// it says where it comes from, and cannot be of our type without asking first.
struct Provenance {
  std::string_view host = {};  // each header as it is; empty: it is not there
  std::string_view origin = {};
  std::string_view fetch_site = {};  // Sec-Fetch-Site
  std::string_view content_type = {};
};
bool comes_from_here(const Provenance& headers);

// What `Basic` credentials hold: "user:password". Nothing: it is not base64.
std::optional<std::string> decode_base64(std::string_view text);

// Whether a Host header names an address or localhost. Another site's page whose name points here (DNS rebinding) sends
// that name.
bool names_no_other_site(std::string_view host);

}  // namespace lull
