#include "trace/csv.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cstring>

#include "trace/cells.h"

namespace lull::trace {
namespace {

Chunk chunk_of(const std::string& text) {
  Chunk chunk;
  chunk.bytes.assign(text.begin(), text.end());
  if (chunk.bytes.empty() || chunk.bytes.back() != '\n') chunk.bytes.push_back('\n');
  chunk.size = chunk.bytes.size();
  chunk.bytes.resize(chunk.size + Chunker::kPadding, '\n');
  return chunk;
}

// Pieces that rows are made of, good and bad ones.
rc::Gen<std::string> cells() {
  return rc::gen::element<std::string>(
      "0", "1", "45", "45 %", " 45 %", "45%", "70.12 W", "70.12", "-3", "+4", "1024 MiB", "7 GiB", "0.1", "1e3",
      "1e400", "", " ", "[N/A]", "[GPU is lost]", "N/A", "nan", "[x", "\"5\"", "\"5", "a\"b", "many", "P8", "GPU-aa",
      "5 bananas", "12345678901234567890123", "0.30000000000000004", "16777217.0000000001", "3.4028236e38", "\t8",
      "9\t", ".5", "5.", ".", "-", "1710500669.052", "1710500670", "2024/03/15 11:04:29.052", "2024-03-15T11:04:30Z",
      "2024-03-15T11:04:30Z ", "time", "timestamp");
}

TEST(Csv, TheFastWayAgreesWithTheSlowOne) {
  const bool held = rc::check([] {
    const std::string header =
        *rc::gen::element<std::string>("time,gpu,util [%],power,mem_used [MiB],pstate\n", "util,power,gpu,uuid,time\n",
                                       "x,time,util\n", "timestamp, index, utilization.gpu [%], power.draw [W]\n");
    const std::string first =
        *rc::gen::element<std::string>("1710500669,0,45 %,70 W,5 MiB,P0\n", "45,70,0,GPU-a,2024-03-15T11:04:29Z\n",
                                       "1,2,3\n", "2024/03/15 11:04:29.052, 0, 45 %, 70 W\n");
    const auto schema =
        detect_schema(header + first, {}, {Metric::util, Metric::power, Metric::mem_used, Metric::pstate});
    RC_PRE(schema.has_value());
    // Mostly good rows, with a cell here and there made odd: a row of odd cells proves little.
    std::string text;
    const auto good = *split_line(first.substr(0, first.size() - 1), ',');
    const auto names = *split_line(header.substr(0, header.size() - 1), ',');
    for (int line = 0; line < 30; ++line) {
      auto row = good;
      const int changes = *rc::gen::inRange(0, 3);
      for (int i = 0; i < changes; ++i) row[*rc::gen::inRange<std::size_t>(0, row.size())] = *cells();
      for (std::size_t i = 0; i < row.size(); ++i)
        if (i < names.size() && (names[i] == "gpu" || names[i] == "index") && row[i] == "0")
          row[i] = std::to_string(line % 3);
      if (*rc::gen::inRange(0, 20) == 0) row.push_back(*cells());
      if (*rc::gen::inRange(0, 20) == 0) row.pop_back();
      for (std::size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + row[i];
      text += *rc::gen::element<std::string>("\n", "\r\n");
    }
    const Chunk chunk = chunk_of(text);
    CsvParser fast(*schema);
    CsvParser slow(*schema);
    slow.set_slow(true);
    Batch a;
    Batch b;
    fast.parse(chunk, a);
    slow.parse(chunk, b);
    RC_ASSERT(a.rows == b.rows);
    RC_ASSERT(a.bad == b.bad);
    RC_ASSERT(a.lines == b.lines);
    for (std::size_t row = 0; row < a.rows; ++row) {
      RC_ASSERT(a.at[row] == b.at[row]);
      RC_ASSERT(fast.identities().cells(a.gpu[row]) == slow.identities().cells(b.gpu[row]));
      for (std::size_t slot = 0; slot < a.value.size(); ++slot)
        RC_ASSERT(std::bit_cast<unsigned>(a.value[slot][row]) == std::bit_cast<unsigned>(b.value[slot][row]));
    }
  });
  EXPECT_TRUE(held);
}

// What a cell with quotes came to is no cell of a row without them.
TEST(Csv, NamesWithASeparatorInThemAreNotMistakenForSeveralCells) {
  const auto schema = detect_schema("time,gpu,command,util\n1710500669,0,train,5\n", {}, {Metric::util});
  ASSERT_TRUE(schema);
  CsvParser parser(*schema);
  Batch batch;
  const Chunk chunk = chunk_of(
      "1710500669,0,\"a,b\",5\n"
      "1710500670,0,\"a,b\",6\n"
      "1710500671,0,a,b,7\n"
      "1710500672,0,a,8\n"
      "1710500673,0,a,9\n");
  parser.parse(chunk, batch);
  EXPECT_EQ(batch.rows, 4U);
  EXPECT_EQ(batch.bad, 1U);
  ASSERT_EQ(batch.first_bad.size(), 1U);
  EXPECT_EQ(batch.first_bad[0].line, 3U);
  EXPECT_EQ(parser.identities().cells(batch.gpu[1])[1], "a,b");
  EXPECT_EQ(parser.identities().cells(batch.gpu[3])[1], "a");
}

TEST(Columns, AsPeopleWriteThem) {
  const auto choices = parse_columns(" time=ts:ms , gpu=host+idx, util=GPU: Util, mem_used=fb:MiB ");
  ASSERT_TRUE(choices);
  ASSERT_EQ(choices->size(), 4U);
  EXPECT_EQ((*choices)[0].unit, "ms");
  EXPECT_EQ((*choices)[2].column, "GPU: Util");
  EXPECT_EQ((*choices)[3].unit, "MiB");
  for (const char* bad : {"util", "util=", "=x", "utl=x", "time=a,time=b"}) EXPECT_FALSE(parse_columns(bad)) << bad;
  EXPECT_NE(parse_columns("utl=x").error().message().find("did you mean 'util'"), std::string::npos);
}

}  // namespace
}  // namespace lull::trace
