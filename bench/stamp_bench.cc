// stamp_bench: writes the time (CLOCK_MONOTONIC, ns) at which it ran, and ends. As the
// job of `lull run` it shows when the job began and when it was over.

#include <unistd.h>

#include <cstdio>
#include <ctime>

int main() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  char text[32];
  const int length =
      std::snprintf(text, sizeof text, "%lld\n", static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  return write(STDOUT_FILENO, text, static_cast<size_t>(length)) == length ? 0 : 1;
}
