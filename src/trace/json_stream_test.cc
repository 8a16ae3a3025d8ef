#include "trace/ndjson.h"

#include <gtest/gtest.h>

#include <string>

namespace lull::trace {
namespace {

// What was told, as text.
class Told final : public JsonHandler {
 public:
  std::string text;
  void open(bool object) override { text += object ? "{" : "["; }
  void close() override { text += ")"; }
  void key(std::string_view name) override { (text += name) += ":"; }
  void value(std::string_view value, bool quoted) override {
    text += quoted ? "'" + std::string(value) + "'" : std::string(value) + ";";
  }
  void document_end() override { text += "."; }
  void broken() override { text += "!"; }
};

std::string told(std::string_view json, std::size_t piece) {
  Told handler;
  JsonStream stream;
  for (std::size_t from = 0; from < json.size(); from += piece) stream.feed(json.substr(from, piece), handler);
  stream.finish(handler);
  return handler.text;
}

TEST(JsonStream, InPiecesOfAnySize) {
  struct Case {
    const char* json;
    const char* expected;
  };
  for (const Case& one :
       {Case{R"({"a": [1, -2.5e3, "x\"\u00e9{", null], "b": {}})", "{a:[1;-2.5e3;'x\"é{'null;)b:{))."},
        Case{"{\"a\":1}\n{\"a\":2}\n", "{a:1;).{a:2;)."}, Case{"[[1,2],[3]]", "[[1;2;)[3;))."},
        Case{"{\"a\": {\"b\": 1{\"c\": 2}", "{a:{b:1;!{c:2;)."}, Case{"{\"a\": \"cut\n{\"c\": 2}", "{a:!{c:2;)."},
        Case{"Error: no driver\n{\"c\": 2}", "{c:2;)."}, Case{"{\"a\": [1, 2", "{a:[1;2;!"}, Case{"", ""}})
    for (const std::size_t piece : {1, 2, 3, 1000}) EXPECT_EQ(told(one.json, piece), one.expected) << one.json;
}

TEST(JsonStream, NoDepthAndNoLengthHurts) {
  EXPECT_NE(told(std::string(100'000, '['), 1000).find('!'), std::string::npos);
  EXPECT_NE(told("{\"" + std::string(1'000'000, 'a') + "\":1}", 1000).find('!'), std::string::npos);
}

}  // namespace
}  // namespace lull::trace
