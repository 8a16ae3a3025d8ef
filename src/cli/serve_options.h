#pragma once
// The options of `lull serve`. `lull` checks them and starts the program lull-serve, which reads them again.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

// Where requests come in: a socket in the file system, or an address and a port.
struct ListenAddress {
  std::string path = {};  // of a unix socket; empty: the address counts
  std::string host = {};  // as numbers: "127.0.0.1", "::1"
  std::uint16_t port = 0;
  bool ipv6 = false;
  bool local = true;  // other machines cannot connect

  std::string to_string() const;  // "unix:/run/lull/serve.sock", "127.0.0.1:9836", "[::1]:9836"
};
Result<ListenAddress> parse_listen(std::string_view text);

struct ServeSettings {
  ListenAddress listen;
  std::string tls_certificate;  // files
  std::string tls_key;
  std::string token_file;
  std::string history;  // folder of `lull record --history`; empty: none
  Duration every{};
  bool dcgm_names = false;
  bool allow_keep = false;

  bool tls() const { return !tls_certificate.empty(); }
};

// Nothing: go on with the settings. A number: the exit status, all has been said.
std::optional<int> parse_serve(int argc, char** argv, ServeSettings& settings);

}  // namespace lull
