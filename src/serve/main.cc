// The program lull-serve, which `lull serve` becomes.

#include <exception>
#include <new>
#include <string>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/serve_options.h"
#include "serve/session.h"
#include "session/machine.h"

int main(int argc, char** argv) {
  try {
    lull::ServeSettings settings;
    if (const auto status = lull::parse_serve(argc, argv, settings)) return *status;
    lull::ignore_sigpipe();
    return lull::on_machine(lull::SystemClock(), [&](lull::Machine& machine) {
      return lull::ServeSession(settings, machine,
                                [](const std::string& text) { (void)lull::complain("serve: " + text); })
          .run();
    });
  } catch (const std::bad_alloc&) {
    return lull::complain("there is no memory left");
  } catch (const std::exception& error) {
    return lull::complain(error.what());
  }
}
