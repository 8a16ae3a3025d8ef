#include "serve/access.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/fd.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

constexpr std::size_t kMostTokenBytes = 64 << 10;

// As long for a wrong one as for the right one.
bool same(std::string_view one, std::string_view other) {
  unsigned char different = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < one.size(); ++i)
    different = static_cast<unsigned char>(
        different | (static_cast<unsigned char>(one[i]) ^
                     static_cast<unsigned char>(other.empty() ? '\0' : other[i % other.size()])));
  return different == 0;
}

// What follows the scheme, whatever its case; nothing: it is another one.
std::optional<std::string_view> after_scheme(std::string_view value, std::string_view scheme) {
  if (value.size() <= scheme.size() || value[scheme.size()] != ' ') return std::nullopt;
  if (lowered(value.substr(0, scheme.size())) != scheme) return std::nullopt;
  return trim(value.substr(scheme.size()));
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    std::uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<std::uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<std::uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      value = static_cast<std::uint32_t>(c - '0') + 52;
    else if (c == '+' || c == '/')
      value = c == '+' ? 62 : 63;
    else
      return std::nullopt;
    bits = (bits << 6 | value) & 0xffffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

Result<Tokens> Tokens::parse(std::string_view text) {
  Tokens tokens;
  std::size_t number = 0;
  for (const std::string_view row : split(text, '\n')) {
    ++number;
    std::string_view token = trim(row);
    if (token.empty() || token.starts_with('#')) continue;
    Token one;
    if (const std::size_t blank = token.find_first_of(" \t"); blank != std::string_view::npos) {
      const std::string name(token.substr(0, blank));
      one.user = user_called(name);
      if (!one.user) return fail(fmt::format("line {}: there is no user '{}'", number, printable(name)));
      token = trim(token.substr(blank));
    }
    if (token.size() < kShortest)
      return fail(fmt::format("line {}: a token has at least {} characters", number, kShortest));
    if (!std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7f; }))
      return fail(fmt::format("line {}: a token is one word of ASCII characters", number));
    one.text = token;
    tokens.all_.push_back(std::move(one));
  }
  if (tokens.all_.empty()) return fail("there is no token in it; one per line would be right");
  return tokens;
}

Result<Tokens> Tokens::read(const std::string& path) {
  const auto file = open_file(path, O_RDONLY | O_NONBLOCK);
  struct stat status{};
  if (!file) return fail(file.error().errno_value, "--token-file " + printable(path));
  if (::fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode))
    return fail("--token-file " + printable(path) + ": not a file");
  if ((status.st_mode & 0077) != 0 || (status.st_uid != 0 && status.st_uid != ::geteuid()))
    return fail(
        fmt::format("--token-file {0}: others can read or change it; chmod 600 {0} would be right", printable(path)));
  std::string text(kMostTokenBytes, '\0');
  const ssize_t got = ::read(file->get(), text.data(), text.size());
  if (got < 0) return fail(errno, "--token-file " + printable(path));
  text.resize(static_cast<std::size_t>(got));
  auto tokens = parse(text);
  if (!tokens) return std::unexpected(std::move(tokens.error()).during("--token-file " + printable(path)));
  return tokens;
}

const Tokens::Token* Tokens::find(std::string_view authorization) const {
  std::string given;
  if (const auto bearer = after_scheme(authorization, "bearer")) {
    given = *bearer;
  } else if (const auto basic = after_scheme(authorization, "basic")) {
    const auto pair = decode_base64(*basic);
    const std::size_t colon = pair ? pair->find(':') : std::string::npos;
    if (colon != std::string::npos) given = pair->substr(colon + 1);
  }
  const Token* found = nullptr;
  for (const Token& token : all_)
    if (same(given, token.text)) found = &token;
  return found;
}

bool Tokens::allow(std::string_view authorization) const { return find(authorization) != nullptr; }

std::optional<uid_t> Tokens::user_of(std::string_view authorization) const {
  const Token* const found = find(authorization);
  return found == nullptr ? std::nullopt : found->user;
}

bool comes_from_here(const Provenance& headers) {
  if (lowered(trim(headers.content_type.substr(0, headers.content_type.find(';')))) != "application/json") return false;
  if (!headers.fetch_site.empty() && headers.fetch_site != "same-origin" && headers.fetch_site != "none") return false;
  if (headers.origin.empty()) return true;  // no browser
  std::string_view site = headers.origin;
  for (const std::string_view scheme : {"http://", "https://"})
    if (site.starts_with(scheme))
      return !headers.host.empty() && lowered(site.substr(scheme.size())) == lowered(headers.host);
  return false;
}

bool names_no_other_site(std::string_view host) {
  if (host.contains('\0')) return false;  // inet_pton would look at what is before it
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) return false;
    const std::string_view port = host.substr(end + 1);
    if (!port.empty() && (!port.starts_with(':') || !to_unsigned(port.substr(1)))) return false;
    in6_addr address{};
    return ::inet_pton(AF_INET6, std::string(host.substr(1, end - 1)).c_str(), &address) == 1;
  }
  const std::size_t colon = host.find(':');
  if (colon != std::string_view::npos && !to_unsigned(host.substr(colon + 1))) return false;
  const std::string name = lowered(host.substr(0, colon));
  in_addr address{};
  return name == "localhost" || ::inet_pton(AF_INET, name.c_str(), &address) == 1;
}

}  // namespace lull
