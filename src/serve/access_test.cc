#include "serve/access.h"

#include <gtest/gtest.h>

#include <string>

#include "cli/serve_options.h"

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
