#include "base/http_get.h"

#include <gtest/gtest.h>

#include <string>

namespace lull {
namespace {

constexpr std::size_t kMost = 1000;

std::string body_of(std::string_view bytes, bool ended = true) {
  const auto answer = read_http_answer(bytes, ended, kMost);
  if (!answer) return "error: " + answer.error().message();
  return *answer ? (*answer)->body : "more";
}

TEST(HttpAddress, IsReadAndWritten) {
  const auto address = parse_http_address("http://127.0.0.1:8000/metrics?a=b");
  ASSERT_TRUE(address);
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 8000);
  EXPECT_EQ(address->path, "/metrics?a=b");
  EXPECT_EQ(address->to_string(), "http://127.0.0.1:8000/metrics?a=b");
  EXPECT_EQ(parse_http_address("http://[::1]:9/")->host, "::1");
  EXPECT_EQ(parse_http_address("http://[::1]:9/")->to_string(), "http://[::1]:9/");
  EXPECT_EQ(parse_http_address("HTTP://gpu1")->path, "/");
}

TEST(HttpAddress, WhatIsNoneIsRefusedWithWhatWouldBeRight) {
  const auto why = [](std::string_view url) { return parse_http_address(url).error().message(); };
  EXPECT_NE(why("https://a/").find("https is not spoken here"), std::string::npos);
  EXPECT_NE(why("ftp://a/").find("http://HOST:PORT/PATH"), std::string::npos);
  EXPECT_NE(why("http://").find("host is missing"), std::string::npos);
  EXPECT_NE(why("http://a:0/").find("port"), std::string::npos);
  EXPECT_NE(why("http://a:65536/").find("port"), std::string::npos);
  EXPECT_NE(why("http://me:secret@a/").find("no user and password"), std::string::npos);
  EXPECT_NE(why("http://a/b c").find("no blanks"), std::string::npos);
  EXPECT_NE(why("http://a/\r\nX: y").find("no blanks"), std::string::npos);
  EXPECT_NE(why("http://[::1/").find("]"), std::string::npos);
}

TEST(HttpAnswer, IsTheBodyOfItsLengthOrOfItsChunksOrToTheEnd) {
  EXPECT_EQ(body_of("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false), "abc");
  EXPECT_EQ(body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", false),
            "abcde");
  EXPECT_EQ(body_of("HTTP/1.0 200 OK\n\nabc"), "abc");
  EXPECT_EQ(body_of("HTTP/1.0 200 OK\n\nabc", false), "more");
}

TEST(HttpAnswer, WhatIsCutShortIsAnError) {
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
  const std::string chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(body_of(whole.substr(0, i), false), "more") << i;
    EXPECT_TRUE(body_of(whole.substr(0, i)).starts_with("error: ")) << i;
  }
  for (std::size_t i = 0; i < chunks.size() - 4; ++i)
    EXPECT_TRUE(body_of(chunks.substr(0, i)).starts_with("error: ")) << i;
}

TEST(HttpAnswer, WhatIsTooLongOrGarbageIsAnError) {
  const auto refused = [](const std::string& bytes, std::string_view why) {
    const std::string said = body_of(bytes, false);
    return said.starts_with("error: ") && said.find(why) != std::string::npos;
  };
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "more than"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\n\r\n" + std::string(1001, 'x'), "more than"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "more than"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "chunk"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "chunk"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "not HTTP"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", "packed"));
  EXPECT_TRUE(refused("HTTP/1.1 503 Service Unavailable\r\n\r\n", "it answers 503 Service Unavailable"));
  EXPECT_TRUE(refused("HTTP/1.1 302 Found\r\nLocation: http://b/\r\n\r\n", "it answers 302"));
  EXPECT_TRUE(refused("SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"));
  EXPECT_TRUE(refused("HTTP/1.1 200 OK\r\n" + std::string(70'000, 'x'), "no end"));
}

}  // namespace
}  // namespace lull
