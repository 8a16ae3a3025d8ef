#include "cli/serve_options.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kServeAbout =
    "Serves what the GPUs do over HTTP: a page for people, /metrics for Prometheus, /api/ as JSON.\n"
    "It only reads, unless --allow-keep is given.\n";
constexpr const char* kServeMore =
    "ADDRESS is unix:PATH, 127.0.0.1:PORT or [::1]:PORT. Any other address needs --tls-cert, --tls-key\n"
    "and --token-file. A token file has one token per line, of at least 16 characters. A line that begins with\n"
    "a user and a blank is that user's token. A unix socket needs none: the kernel says who asks.\n\n"
    "Exit status: 0 ended by a signal; 2 the command line was wrong; 125 it cannot listen there.\n\n"
    "Examples:\n"
    "  lull serve --listen 127.0.0.1:9836\n"
    "  curl --unix-socket /run/lull/serve.sock http://localhost/metrics\n";

bool is_loopback(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

std::unexpected<Error> not_an_address(std::string_view text) {
  return fail(
      fmt::format("--listen '{}': unix:/run/lull/serve.sock or 127.0.0.1:9836 would be right", printable(text)));
}

}  // namespace

std::string ListenAddress::to_string() const {
  if (!path.empty()) return "unix:" + path;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<ListenAddress> parse_listen(std::string_view text) {
  ListenAddress address;
  if (text.starts_with("unix:")) {
    address.path = text.substr(5);
    if (!address.path.starts_with('/') || address.path.ends_with('/') || address.path.contains('\0'))
      return not_an_address(text);
    if (address.path.size() >= sizeof(sockaddr_un::sun_path))
      return fail(fmt::format("--listen: the path of a socket has at most {} bytes, '{}' has {}",
                              sizeof(sockaddr_un::sun_path) - 1, printable(address.path), address.path.size()));
    return address;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return not_an_address(text);
  const auto port = to_unsigned(text.substr(colon + 1));
  if (!port || *port > 65535) return not_an_address(text);
  std::string_view host = text.substr(0, colon);
  address.port = static_cast<std::uint16_t>(*port);
  address.ipv6 = host.starts_with('[') && host.ends_with(']');
  if (address.ipv6) host = host.substr(1, host.size() - 2);
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  if (address.host.contains('\0')) return not_an_address(text);
  in_addr four{};
  in6_addr six{};
  if (address.ipv6) {
    if (::inet_pton(AF_INET6, address.host.c_str(), &six) != 1) return not_an_address(text);
    address.local = is_loopback(six);
  } else {
    if (::inet_pton(AF_INET, address.host.c_str(), &four) != 1) return not_an_address(text);
    address.local = (ntohl(four.s_addr) >> 24) == 127;
  }
  return address;
}

std::optional<int> parse_serve(int argc, char** argv, ServeSettings& settings) {
  CommandLine line(kServeAbout, "lull serve");
  std::string listen = "unix:/run/lull/serve.sock";
  std::string every = "2s";
  line.option("--listen", listen, "where requests come in").value("ADDRESS");
  line.option(shared::kEvery, every);
  line.option("--tls-cert", settings.tls_certificate, "serve TLS with this certificate (PEM) (default: plain HTTP)")
      .value("FILE");
  line.option("--tls-key", settings.tls_key, "the key of the certificate (PEM) (default: none)").value("FILE");
  line.option(shared::kTokenFile, settings.token_file, "tokens; each request must send one");
  line.option(shared::kHistory, settings.history, "also show the history that `lull record --history DIR` writes");
  line.flag("--dcgm-names", settings.dcgm_names, "also give the metrics by the names of dcgm-exporter");
  line.flag("--allow-keep", settings.allow_keep,
            "let who asks keep their own jobs and GPUs for a while, as `lull keep` does");
  line.footer(kServeMore);
  if (const auto status = line.parse(argc, argv)) return status;
  const auto refuse = [](const std::string& why) { return complain("serve: " + why, kExitUsage); };

  auto address = parse_listen(listen);
  if (!address) return refuse(address.error().message());
  settings.listen = *std::move(address);
  const auto interval = duration_option("--every", every);
  if (!interval) return refuse(interval.error().message());
  if (*interval < 100ms || *interval > 1h) return refuse("--every: from 100ms to 1h would be right");
  settings.every = *interval;
  if (settings.tls_certificate.empty() != settings.tls_key.empty())
    return refuse("--tls-cert and --tls-key: both are needed, or none");
  if (!settings.listen.local && (!settings.tls() || settings.token_file.empty()))
    return refuse(
        fmt::format("--listen {}: other machines can reach it, so --tls-cert, --tls-key and --token-file are needed",
                    settings.listen.to_string()));
  if (!settings.listen.path.empty() && settings.tls())
    return refuse("--tls-cert: a unix socket is served without TLS; an address such as 0.0.0.0:9836 is meant");
  return std::nullopt;
}

}  // namespace lull
