// How fast traces come in: MB of CSV a second on one thread and on two. Reads a
// file made on the spot, in memory-backed storage, as `lull replay` does.

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "trace/reader.h"
#include "trace/time.h"

namespace {

using lull::Metric;

class Count final : public lull::trace::TraceSink {
 public:
  void restart() override { samples = 0; }
  void block(std::size_t, const lull::Block& block) override { samples += block.size(); }
  void frames(std::span<const lull::Block> gpus) override { samples += gpus[0].size(); }
  std::size_t samples = 0;
};

// 8 GPUs once a second, in the words of nvidia-smi or our own.
std::string make_trace(bool nvidia_smi, std::size_t bytes) {
  std::string text = nvidia_smi ? "timestamp, index, uuid, utilization.gpu [%], power.draw [W], memory.used [MiB]\n"
                                : "time,gpu,uuid,util_percent,mem_used_bytes,power_watts\n";
  unsigned dice = 1;
  for (std::int64_t second = 0; text.size() < bytes; ++second) {
    std::string when = lull::trace::format_time((1'710'500'669LL + second) * 1'000'000'000 + 52'000'000);
    if (nvidia_smi) {
      when.pop_back();
      when[4] = when[7] = '/';
      when[10] = ' ';
    }
    for (int gpu = 0; gpu < 8; ++gpu) {
      dice = dice * 1664525 + 1013904223;
      const unsigned util = (dice >> 16) % 101;
      const double watts = 60 + (dice >> 8) % 50000 / 100.0;
      if (nvidia_smi)
        text += fmt::format("{}, {}, GPU-5dc3a1b2-0000-4000-8000-00000000000{}, {} %, {:.2f} W, {} MiB\n", when, gpu,
                            gpu, util, watts, (dice >> 12) % 81920);
      else
        text += fmt::format("{},{},GPU-5dc3a1b2-0000-4000-8000-00000000000{},{},{},{:.2f}\n", when, gpu, gpu, util,
                            (dice >> 12) % 81920 * 1048576ULL, watts);
    }
  }
  return text;
}

void read_csv(benchmark::State& state, bool nvidia_smi) {
  char path[] = "/tmp/lull-trace-bench-XXXXXX";
  const int fd = ::mkstemp(path);
  const std::string text = make_trace(nvidia_smi, 64U << 20);
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  ::close(fd);
  lull::trace::TraceOptions options;
  options.paths = {path};
  options.metrics = {Metric::util, Metric::power};
  options.threads = static_cast<unsigned>(state.range(0));
  for (auto _ : state) {
    auto reader = lull::trace::TraceReader::open(options);
    Count count;
    if (!reader || !reader->read(count)) std::abort();
    benchmark::DoNotOptimize(count.samples);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
  ::unlink(path);
}
BENCHMARK_CAPTURE(read_csv, own, false)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(read_csv, nvidia_smi, true)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
