#include "api/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HttpMessage, SplitsTargets) {
  HttpRequest request;
  ASSERT_TRUE(split_target("/v1/models/a%2Fb%20c?x=1&y=%zz", request));
  EXPECT_EQ(request.path, "/v1/models/a/b c");
  EXPECT_EQ(request.query, "x=1&y=%zz");
  ASSERT_TRUE(split_target("/health", request));
  EXPECT_EQ(request.path, "/health");
  EXPECT_EQ(request.query, "");
  EXPECT_FALSE(split_target("/a%", request));
  EXPECT_FALSE(split_target("/a%4", request));
  EXPECT_FALSE(split_target("/a%4?0", request));
  EXPECT_FALSE(split_target("/a%xy", request));
}

TEST(HttpMessage, TakesTargetsInAbsoluteForm) {
  HttpRequest request;
  request.headers = {{"host", "proxy"}};
  ASSERT_TRUE(split_target("http://a.example:8000/v1/models?x=1", request));
  EXPECT_EQ(request.path, "/v1/models");
  EXPECT_EQ(request.query, "x=1");
  EXPECT_EQ(request.header("Host"), "a.example:8000");
  ASSERT_TRUE(split_target("HTTPS://b?y", request));
  EXPECT_EQ(request.path, "/");
  EXPECT_EQ(request.query, "y");
  EXPECT_EQ(request.header("Host"), "b");
  EXPECT_FALSE(split_target("http:///health", request));
  ASSERT_TRUE(split_target("/http://c/", request));
  EXPECT_EQ(request.path, "/http://c/");
}

TEST(HttpMessage, FindsHeadersInAnyCase) {
  HttpRequest request;
  request.headers = {{"Content-TYPE", "a"}, {"X", "1"}, {"x", "2"}};
  EXPECT_EQ(request.header("content-type"), "a");
  EXPECT_EQ(request.header("X"), "1");
  EXPECT_EQ(request.header("y"), "");
}

TEST(HttpMessage, WritesHeads) {
  HttpResponse response{.status = 429, .headers = {{"Retry-After", "3"}}, .body = "12345"};
  const std::string head = response_head(response, {.keep_alive = true});
  EXPECT_TRUE(head.starts_with("HTTP/1.1 429 Too Many Requests\r\nDate: ")) << head;
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nConnection: keep-alive\r\n"));
  EXPECT_TRUE(head.ends_with("\r\nRetry-After: 3\r\n\r\n")) << head;
  const std::string chunked =
      response_head(response, {.keep_alive = false, .end = BodyEnd::kChunks});
  EXPECT_THAT(chunked, HasSubstr("\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"));
  EXPECT_THAT(chunked, Not(HasSubstr("Content-Length")));
  const std::string open = response_head(response, {.end = BodyEnd::kConnection});
  EXPECT_THAT(open, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(open, Not(HasSubstr("chunked")));
}

TEST(HttpMessage, ValuesCannotForgeFields) {
  HttpResponse response{.headers = {{"X", "a\r\nSet-Cookie: b"}}};
  EXPECT_THAT(response_head(response, {}), HasSubstr("\r\nX: aSet-Cookie: b\r\n"));
}

TEST(HttpMessage, ChunksNeverEndTheBodyByChance) {
  EXPECT_EQ(chunk_of("abc"), "3\r\nabc\r\n");
  EXPECT_EQ(chunk_of(std::string(17, 'x')), "11\r\n" + std::string(17, 'x') + "\r\n");
  EXPECT_EQ(chunk_of(""), "");
}

}  // namespace
}  // namespace jige::api
