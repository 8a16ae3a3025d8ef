#include "serve/access.h"

#include <gtest/gtest.h>

#include "cli/serve_options.h"
#include "serve/keep.h"

namespace lull {
namespace {

constexpr const char* kToken = "0123456789abcdef";

TEST(TokensTest, OneOfTheFileAndNothingElseIsLetIn) {
  const Tokens tokens = Tokens::parse("# for Prometheus\n 0123456789abcdef \n\nsecond-token-is-longer\n").value();
  EXPECT_TRUE(tokens.allow("Bearer 0123456789abcdef"));
  EXPECT_TRUE(tokens.allow("BEARER   second-token-is-longer "));
  EXPECT_TRUE(tokens.allow("Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm")) << "user:0123456789abcdef";
  EXPECT_TRUE(tokens.allow("Basic OjAxMjM0NTY3ODlhYmNkZWY=")) << ":0123456789abcdef";
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0",
                            "Bearer 0123456789abcdef0123456789abcdef", "Basic 0123456789abcdef",
                            "Basic MDEyMzQ1Njc4OWFiY2RlZg==", "0123456789abcdef", "Bearer # for Prometheus"})
    EXPECT_FALSE(tokens.allow(wrong)) << wrong;
}

TEST(TokensTest, WhatProtectsNothingIsRefused) {
  for (const char* wrong : {"", "\n\n", "# only a comment", "short", "0123456789abcde", "two words and more of them",
                            "0123456789\x01"
                            "bcdef"})
    EXPECT_FALSE(Tokens::parse(wrong)) << wrong;
  EXPECT_TRUE(Tokens::parse(kToken));
}

TEST(TokensTest, ATokenBelongsToTheUserBeforeIt) {
  const Tokens tokens =
      Tokens::parse("root 0123456789abcdef\n12345\tsecond-token-is-longer\nthird-token-is-nobodys").value();
  EXPECT_EQ(tokens.user_of("Bearer 0123456789abcdef"), 0U);
  EXPECT_EQ(tokens.user_of("Bearer second-token-is-longer"), 12345U);
  EXPECT_EQ(tokens.user_of("Bearer third-token-is-nobodys"), std::nullopt);
  EXPECT_TRUE(tokens.allow("Bearer third-token-is-nobodys"));
  EXPECT_EQ(tokens.user_of("Bearer root"), std::nullopt);
  EXPECT_EQ(tokens.user_of(""), std::nullopt);
  EXPECT_FALSE(Tokens::parse("no-such-user-of-this-machine 0123456789abcdef"));
  EXPECT_FALSE(Tokens::parse("root 0123456789abcdef more"));
  EXPECT_FALSE(Tokens::parse("root short"));
}

TEST(ProvenanceTest, OnlyOurOwnPageAndProgramsChangeSomething) {
  const Provenance program{.host = "localhost", .content_type = "application/json"};
  EXPECT_TRUE(comes_from_here(program));
  Provenance page = program;
  page.content_type = "Application/JSON; charset=utf-8";
  page.host = "gpu1:9836";
  page.origin = "https://GPU1:9836";
  page.fetch_site = "same-origin";
  EXPECT_TRUE(comes_from_here(page));
  for (const char* origin : {"null", "http://evil", "https://gpu1", "https://gpu1:98360", "gpu1:9836",
                             "file://gpu1:9836", "https://gpu1:9836/"}) {
    page.origin = origin;
    EXPECT_FALSE(comes_from_here(page)) << origin;
  }
  for (const char* site : {"cross-site", "same-site", "x"}) {
    Provenance other = program;
    other.fetch_site = site;
    EXPECT_FALSE(comes_from_here(other)) << site;
  }
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"}) {
    Provenance other = program;
    other.content_type = type;
    EXPECT_FALSE(comes_from_here(other)) << type;
  }
  EXPECT_FALSE(comes_from_here({.origin = "http://", .content_type = "application/json"}));
}

TEST(KeepRequestTest, IsReadOrRefused) {
  const auto request = parse_keep_request(R"( {"seconds": 60, "target": "a\"b"} )");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->target, "a\"b");
  EXPECT_EQ(request->time, std::chrono::minutes(1));
  EXPECT_EQ(parse_keep_request(R"({"seconds":1})")->target, "");
  for (const char* wrong : {"", "{", "{}", "[]", R"({"seconds":0})", R"({"seconds":-1})", R"({"seconds":"1"})",
                            R"({"seconds":1.5})", R"({"seconds":1,})", R"({"seconds":1}x)", R"({"target":"x"})",
                            R"({"seconds":99999999999})", R"({"seconds":1,"uid":0})", R"({"seconds":1,"target":"\n"})"})
    EXPECT_FALSE(parse_keep_request(wrong)) << wrong;
}

TEST(Base64Test, IsDecodedOrRefused) {
  EXPECT_EQ(decode_base64("bHVsbA=="), "lull");
  EXPECT_EQ(decode_base64("bHVsbA"), "lull");
  EXPECT_EQ(decode_base64("/+8="), "\xff\xef");
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_FALSE(decode_base64("bHVs bA=="));
  EXPECT_FALSE(decode_base64("b=VsbA"));
}

TEST(HostTest, AnAddressAndLocalhostAreNoOtherSite) {
  for (const char* right :
       {"localhost", "LocalHost:9836", "127.0.0.1", "127.0.0.1:1", "10.1.2.3:80", "[::1]", "[::1]:80", "[fe80::1]:80"})
    EXPECT_TRUE(names_no_other_site(right)) << right;
  for (const char* wrong : {"", ":80", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:",
                            "localhost:8x", "[::1", "[::1]80", "[::1]:", "[evil.example]", "1.2.3", "127.0.0.1:80:80"})
    EXPECT_FALSE(names_no_other_site(wrong)) << wrong;
}

TEST(ListenTest, OnlyLoopbackAndSocketsAreLocal) {
  for (const char* local : {"unix:/run/lull/serve.sock", "127.0.0.1:9836", "127.9.9.9:0", "localhost:80", "[::1]:80",
                            "[::ffff:127.0.0.1]:80"})
    EXPECT_TRUE(parse_listen(local).value().local) << local;
  for (const char* open : {"0.0.0.0:80", "10.0.0.1:80", "128.0.0.1:80", "[::]:80", "[::2]:80", "[::ffff:10.0.0.1]:80"})
    EXPECT_FALSE(parse_listen(open).value().local) << open;
  for (const char* right : {"unix:/run/lull/serve.sock", "127.0.0.1:9836", "[::1]:80"})
    EXPECT_EQ(parse_listen(right).value().to_string(), right);
}

}  // namespace
}  // namespace lull
