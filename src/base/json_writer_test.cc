#include "base/json_writer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace lull {
namespace {

using Json = nlohmann::ordered_json;

std::string written(const auto& value) { return JsonWriter().value(value).take(); }

TEST(JsonWriter, PutsCommasBetweenAndNoneAfter) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array().value(true).null().begin_object().end_object().end_array();
  json.key("c").begin_array().end_array().member("d", "x").end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":[true,null,{}],"c":[],"d":"x"})");
}

TEST(JsonWriter, IndentsLikeTheLibraryThatItReplaced) {
  JsonWriter json(2);
  json.begin_object().member("a", 1).key("b").begin_array().value(1).begin_array().end_array().end_array();
  json.key("c").begin_object().member("d", "x").end_object().key("e").begin_object().end_object().end_object();
  const std::string text = json.take();
  EXPECT_EQ(text, Json::parse(text).dump(2));
}

TEST(JsonWriter, UnknownIsNull) {
  EXPECT_EQ(written(std::nan("")), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(written(std::optional<unsigned>()), "null");
  EXPECT_EQ(written(std::optional<double>(std::nan(""))), "null");
  EXPECT_EQ(JsonWriter().value_or_null("").take(), "null");
  EXPECT_EQ(JsonWriter().value_or_null("x").take(), R"("x")");
}

TEST(JsonWriter, WholeNumbersHaveNoFraction) {
  EXPECT_EQ(written(8589934592.0), "8589934592");
  EXPECT_EQ(written(-0.0), "0");
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(100000.0), "100000");
  EXPECT_EQ(written(-2.5), "-2.5");
  EXPECT_EQ(written(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(JsonWriter, EscapesWhatJsonWantsEscaped) {
  EXPECT_EQ(written("a\"b\\c\n\t\r\b\f\x01\x7f/é"), "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\x7f/é\"");
  EXPECT_EQ(written(std::string_view("a\0b", 3)), "\"a\\u0000b\"");
}

TEST(JsonWriter, BytesThatAreNoTextDoNotBreakTheDocument) {
  EXPECT_EQ(written("a\xff"
                    "b"),
            "\"a\xEF\xBF\xBD"
            "b\"");
  EXPECT_EQ(written("\xe2\x82"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");          // cut off
  EXPECT_EQ(written("\xed\xa0\x80").find('\xed'), std::string::npos);      // half of a surrogate pair
  EXPECT_EQ(written("\xf4\x90\x80\x80").find('\xf4'), std::string::npos);  // beyond Unicode
}

RC_GTEST_PROP(JsonWriter, EveryNumberReadsBackAsItself, (std::uint64_t bits)) {
  const auto number = std::bit_cast<double>(bits);
  RC_PRE(std::isfinite(number));
  RC_ASSERT(Json::parse(written(number)).get<double>() == number);
}

RC_GTEST_PROP(JsonWriter, AnyBytesMakeADocument, (const std::vector<std::string>& texts)) {
  JsonWriter json;
  json.begin_object();
  for (const std::string& text : texts) json.member(text, std::string_view(text));
  const std::string text = json.member("all", texts).end_object().take();
  RC_ASSERT(Json::accept(text));
}

}  // namespace
}  // namespace lull
