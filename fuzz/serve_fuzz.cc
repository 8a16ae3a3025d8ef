// What a request says of itself, and the options and files that lull-serve reads: any bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/serve_options.h"
#include "fuzz/require.h"
#include "serve/access.h"
#include "serve/metrics.h"

using namespace lull;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const Tokens kTokens = Tokens::parse("0123456789abcdef").value();
  // Whoever is let in has sent the token, as it is or in base64.
  if (kTokens.allow(text)) {
    const std::size_t blank = text.find(' ');
    require(blank != std::string_view::npos);
    const auto decoded = decode_base64(text.substr(text.find_last_of(' ') + 1));
    require(text.find("0123456789abcdef") != std::string_view::npos ||
            (decoded && decoded->ends_with(":0123456789abcdef")));
  }
  if (const auto bytes = decode_base64(text)) require(bytes->size() <= size);
  if (names_no_other_site(text)) require(size < 300 && text.find('/') == std::string_view::npos);
  if (const auto address = parse_listen(text)) {
    const auto again = parse_listen(address->to_string());
    require(again && again->to_string() == address->to_string() && again->local == address->local);
  }
  if (const auto tokens = Tokens::parse(text)) require(!tokens->empty() && size >= Tokens::kShortest);
  require(label_value(text).find_first_of("\n\r") == std::string::npos);
  return 0;
}
