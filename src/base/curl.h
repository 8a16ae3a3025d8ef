#pragma once
// The program curl, which speaks HTTP and TLS for us: lull itself needs libc and libm alone, loads no certificates and
// parses no answer of a server that it did not ask for. What must not be seen (addresses, tokens) goes into its
// configuration, which it reads from its standard input: a command line is for all to see.

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

// A value in a configuration of curl.
std::string curl_quoted(std::string_view text);

// Runs curl with this configuration; what the server sends goes to `output`, from its place on. No .curlrc is read,
// no redirect is followed. The error is what curl said.
// The status of the answer.
Result<int> run_curl(const std::string& configuration, int output, Duration limit);

}  // namespace lull
