#include "compat/argparse.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace lull {
namespace {

TEST(Argparse, WholeNumbersAsPythonReadsThem) {
  EXPECT_EQ(python_int("5"), 5);
  EXPECT_EQ(python_int("+1"), 1);
  EXPECT_EQ(python_int("-07"), -7);
  EXPECT_EQ(python_int(" 1_0\n"), 10);
  EXPECT_EQ(python_int("99999999999999999999"), std::numeric_limits<std::int64_t>::max());
  for (const char* wrong : {"", " ", "+", "1.0", "1e3", "_1", "1_", "1__0", "+-1", "0x1", "1 0", "inf"})
    EXPECT_EQ(python_int(wrong), std::nullopt) << wrong;
}

TEST(Argparse, FractionsAsPythonReadsThem) {
  EXPECT_EQ(python_float("+1"), 1);
  EXPECT_EQ(python_float("-.5"), -0.5);
  EXPECT_EQ(python_float("1_0.5e1"), 105);
  EXPECT_EQ(python_float("5."), 5);
  EXPECT_EQ(python_float("-Infinity"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(python_float("1e999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(python_float("1e-999"), 0);
  EXPECT_TRUE(std::isnan(python_float(" nan ").value_or(0)));
  for (const char* wrong : {"", "+", "++1", "1._0", "1e", "0x1p3", "nanx", "nan(1)", "e1", "."})
    EXPECT_EQ(python_float(wrong), std::nullopt) << wrong;
}

TEST(Argparse, ADashAndANumberIsAValueAndNoOption) {
  const std::array options = {ArgparseOption{"n", {"-n"}, Takes::one, Value::real}};
  const auto parsed = [&](std::vector<std::string> words) { return argparse(options, words, true); };
  EXPECT_EQ(parsed({"-n", "-.5"})->text("n", ""), "-.5");
  EXPECT_EQ(parsed({"-5", "x"})->command, (std::vector<std::string>{"-5", "x"}));
  EXPECT_EQ(parsed({"-a b", "x"})->command.front(), "-a b");
  for (const char* option : {"-inf", "-1e3", "-1_0", "-"}) {
    const auto given = parsed({"-n", option});
    EXPECT_TRUE(option == std::string("-") || given.error().what == "argument -n: expected one argument") << option;
  }
}

}  // namespace
}  // namespace lull
