#include "trace/writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>

#include "trace/rows.h"
#include "trace/test_trace.h"

namespace lull::trace {
namespace {

const std::vector<Metric> kTwo = {Metric::util, Metric::power};

Device device() {
  Device device;
  device.index = 1;
  device.uuid = "GPU-a,\"b\"";
  return device;
}

std::string row(Format format, std::int64_t second, double util) {
  Reading reading;
  reading.set(Metric::util, util);
  std::string out;
  append_row(out, {format, kTwo},
             {WallTime(std::chrono::seconds(1'710'500'669 + second)), device(), reading, {}, {}, {}});
  return out;
}

WriterOptions options_for(const std::string& path, Format format, Packing packing) {
  WriterOptions options;
  options.path = path;
  options.format = format;
  options.packing = packing;
  options.header = header_line({format, kTwo});
  options.like = row(format, 0, 0);
  return options;
}

std::vector<float> utils(const std::string& path) {
  TraceOptions options;
  options.paths = {path};
  options.metrics = {Metric::util};
  const auto back = read_back(options);
  std::vector<float> values;
  if (!back) return values;
  for (const Sample& sample : back->of.at("1")) values.push_back(sample.values[0]);
  EXPECT_EQ(back->report.bad_rows, 0U);
  return values;
}

struct Kind {
  Format format;
  Packing packing;
  const char* ending;
};
const Kind kKinds[] = {
    {Format::csv, Packing::none, ".csv"},         {Format::csv, Packing::gzip, ".csv.gz"},
    {Format::csv, Packing::zstd, ".csv.zst"},     {Format::ndjson, Packing::none, ".ndjson"},
    {Format::ndjson, Packing::gzip, ".jsonl.gz"}, {Format::ndjson, Packing::zstd, ".ndjson.zst"},
};

TEST(TraceWriter, UnknownIsNothing) {
  EXPECT_EQ(row(Format::csv, 0, 12.5), "2024-03-15T11:04:29.000Z,1,\"GPU-a,\"\"b\"\"\",12.5,\n");
  EXPECT_EQ(row(Format::ndjson, 0, 0),
            "{\"time\":\"2024-03-15T11:04:29.000Z\",\"gpu\":\"1\",\"uuid\":\"GPU-a,\\\"b\\\"\",\"util_percent\":0,"
            "\"power_watts\":null}\n");
}

// A rule says `util < 5`: what was 4.99996 when it was judged must not be 5 in a replay, nor the other way round.
TEST(TraceWriter, WhatIsReadBackIsWhatWasJudged) {
  std::vector<float> judged = {4.99996F, 5.00004F, 99.99999F, 1.0F / 3, 0.1F, 1e-7F};
  for (float value = 0.37F; value < 100; value *= 1.0137F) judged.push_back(value);
  for (const Kind& kind : kKinds) {
    const TempFile file("", kind.ending);
    auto writer = TraceWriter::open(options_for(file.path(), kind.format, kind.packing));
    ASSERT_TRUE(writer) << writer.error().message();
    for (std::size_t i = 0; i < judged.size(); ++i)
      writer->add(row(kind.format, static_cast<int>(i), static_cast<double>(judged[i])));
    ASSERT_TRUE(writer->close());
    EXPECT_EQ(utils(file.path()), judged) << kind.ending;
  }
}

// Cut anywhere, by a crash: what was whole is still there, and appending goes on after it.
TEST(TraceWriter, GoesOnAfterACutAnywhere) {
  for (const Kind& kind : kKinds) {
    EXPECT_EQ(format_by_name(kind.ending), kind.format);
    EXPECT_EQ(packing_by_name(kind.ending), kind.packing);
    const TempFile whole("", kind.ending);
    {
      auto writer = TraceWriter::open(options_for(whole.path(), kind.format, kind.packing));
      ASSERT_TRUE(writer) << writer.error().message();
      for (int i = 0; i < 4; ++i) {
        writer->add(row(kind.format, i, i));
        ASSERT_TRUE(writer->flush());
      }
      ASSERT_TRUE(writer->close());
    }
    ASSERT_EQ(utils(whole.path()), (std::vector<float>{0, 1, 2, 3})) << kind.ending;
    const std::string bytes = *read_file(whole.path());
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      const TempFile file(std::string_view(bytes).substr(0, cut), kind.ending);
      auto writer = TraceWriter::open(options_for(file.path(), kind.format, kind.packing));
      ASSERT_TRUE(writer) << kind.ending << " cut at " << cut << ": " << writer.error().message();
      writer->add(row(kind.format, 9, 9));
      ASSERT_TRUE(writer->flush());
      const auto values = utils(file.path());
      ASSERT_FALSE(values.empty()) << kind.ending << " cut at " << cut;
      EXPECT_EQ(values.back(), 9);
      for (std::size_t i = 0; i + 1 < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
      if (cut == bytes.size()) {
        EXPECT_EQ(values.size(), 5U);
        EXPECT_EQ(writer->note(), "");
      }
    }
  }
}

TEST(TraceWriter, OtherColumnsAreRefusedAndNothingChanges) {
  for (const Kind& kind : kKinds) {
    const TempFile file("", kind.ending);
    {
      auto writer = TraceWriter::open(options_for(file.path(), kind.format, kind.packing));
      writer->add(row(kind.format, 0, 1));
      ASSERT_TRUE(writer->close());
    }
    const std::string before = *read_file(file.path());
    auto other = options_for(file.path(), kind.format, kind.packing);
    other.header = header_line({kind.format, {Metric::temp}});
    other.like = "{\"time\":\"x\",\"temp_celsius\":1}";
    const auto writer = TraceWriter::open(other);
    ASSERT_FALSE(writer) << kind.ending;
    EXPECT_NE(writer.error().message().find("has other"), std::string::npos) << writer.error().message();
    EXPECT_EQ(*read_file(file.path()), before);
  }
  const TempFile text("my diary\nday one\n", ".csv");
  EXPECT_FALSE(TraceWriter::open(options_for(text.path(), Format::csv, Packing::none)));
  EXPECT_EQ(*read_file(text.path()), "my diary\nday one\n");
  const TempFile plain("time,gpu\n1,2\n", ".csv.zst");
  EXPECT_FALSE(TraceWriter::open(options_for(plain.path(), Format::csv, Packing::zstd)));
}

// What lull did not write is not shortened, however much it looks like a trace that a crash cut off.
TEST(TraceWriter, WhatWeDidNotWriteIsRefusedAndStaysAsItIs) {
  std::string noise;
  std::uint32_t state = 1;
  for (int i = 0; i < 500'000; ++i) noise += static_cast<char>((state = state * 1664525U + 1013904223U) >> 24U);
  const std::string gzip("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", 10);
  const std::string zstd("\x28\xb5\x2f\xfd\x04\x58", 6);
  struct Case {
    std::string bytes;
    Kind kind;
  };
  std::vector<Case> cases = {
      {gzip + noise, kKinds[1]},
      {gzip + noise, kKinds[4]},
      {zstd + noise, kKinds[2]},
      {gzip + std::string(5000, '\0'), kKinds[1]},
      {"abc", kKinds[1]},
      {"abc", kKinds[2]},
      {"{\"name\":\"" + std::string(5000, 'x') + "\"}", kKinds[3]},
      {R"({"time":"now","name":"precious)", kKinds[3]},
      {"{}", kKinds[3]},
      {noise.substr(0, 5000), kKinds[0]},
  };
  // A trace of ours with a hole in it is damaged, not cut off.
  for (const Kind& kind : kKinds) {
    if (kind.packing == Packing::none) continue;
    const TempFile file("", kind.ending);
    {
      auto writer = TraceWriter::open(options_for(file.path(), kind.format, kind.packing));
      for (int i = 0; i < 100; ++i) {
        writer->add(row(kind.format, i, i));
        ASSERT_TRUE(writer->flush());
      }
    }
    std::string bytes = *read_file(file.path());
    bytes.replace(bytes.size() / 2, 40, 40, '\xff');
    cases.push_back({bytes, kind});
  }
  for (const Case& one : cases) {
    const TempFile file(one.bytes, one.kind.ending);
    const auto writer = TraceWriter::open(options_for(file.path(), one.kind.format, one.kind.packing));
    EXPECT_FALSE(writer) << one.kind.ending << " of " << one.bytes.size();
    if (!writer) {
      EXPECT_EQ(writer.error().message().find('\n'), std::string::npos);
    }
    EXPECT_TRUE(*read_file(file.path()) == one.bytes) << one.kind.ending << " of " << one.bytes.size();
  }
}

TEST(TraceWriter, ADecompressionBombIsRefusedWithLittleMemory) {
  const TempFile plain(std::string(64U << 20, 'x'), "");
  for (const char* command : {"gzip -c", "zstd -qc"}) {
    const bool zstd = command[0] == 'z';
    const TempFile packed("", zstd ? ".csv.zst" : ".csv.gz");
    ASSERT_EQ(std::system((std::string(command) + " < " + plain.path() + " > " + packed.path()).c_str()), 0);
    const std::string before = *read_file(packed.path());
    EXPECT_FALSE(TraceWriter::open(options_for(packed.path(), Format::csv, zstd ? Packing::zstd : Packing::gzip)));
    EXPECT_TRUE(*read_file(packed.path()) == before);
  }
}

TEST(TraceWriter, TwoAtOnceAreRefused) {
  const TempFile file("", ".csv");
  const auto first = TraceWriter::open(options_for(file.path(), Format::csv, Packing::none));
  ASSERT_TRUE(first);
  EXPECT_FALSE(TraceWriter::open(options_for(file.path(), Format::csv, Packing::none)));
}

// A full disk as the kernel reports it: the limit on the size of files.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(TraceWriter, AFullDiskIsSaidAndKeepsWhatWasWritten) {
  for (const Kind& kind : kKinds) {
    const TempFile file("", kind.ending);
    auto writer = TraceWriter::open(options_for(file.path(), kind.format, kind.packing));
    int written = 0;
    {
      const FullDisk full(1000);
      for (; written < 1000; ++written) {
        writer->add(row(kind.format, written, written));
        if (auto put = writer->flush(); !put) {
          EXPECT_EQ(put.error().errno_value, EFBIG);
          break;
        }
      }
    }
    ASSERT_GT(written, 2);
    ASSERT_LT(written, 1000);
    EXPECT_EQ(utils(file.path()).size(), static_cast<std::size_t>(written)) << kind.ending;
    ASSERT_TRUE(writer->close()) << "room again: the pending row follows";
    EXPECT_EQ(utils(file.path()).size(), static_cast<std::size_t>(written) + 1) << kind.ending;
  }
}

}  // namespace
}  // namespace lull::trace
