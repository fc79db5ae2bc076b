#include "api/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/played_server.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using ::testing::HasSubstr;
using testing::PlayedServer;
using testing::TestPort;

constexpr std::string_view kChunked =
    "HTTP/1.1 100 Continue\r\n\r\n"
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTRANSFER-encoding: Chunked\r\n\r\n"
    "5\r\nhello\r\nA;x=y\r\n, big worl\r\n1\r\nd\r\n0\r\nTrailer: x\r\n\r\n";

TEST(ResponseReader, GivesTheSameForEveryCutOfTheBytes) {
  for (size_t cut = 1; cut < kChunked.size(); ++cut) {
    ResponseReader reader;
    std::string body;
    for (size_t at = 0; at < kChunked.size(); at += cut) {
      ASSERT_FALSE(reader.complete());
      ASSERT_TRUE(reader.feed(kChunked.substr(at, cut)));
      body += reader.take_body();
    }
    EXPECT_TRUE(reader.complete());
    EXPECT_EQ(reader.status(), 200);
    EXPECT_EQ(reader.field("content-TYPE"), "text/event-stream");
    EXPECT_EQ(body, "hello, big world");
  }
}

// Chunks of a byte, all in one read: where the rest of it were moved for each of them, this would
// take minutes.
TEST(ResponseReader, TakesTimeLinearInTheBytes) {
  constexpr size_t kChunks = 500'000;
  std::string bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t i = 0; i < kChunks; ++i) bytes += "1\r\nx\r\n";
  ResponseReader chunks;
  ASSERT_TRUE(chunks.feed(bytes));
  EXPECT_EQ(chunks.body_bytes(), kChunks);
  ASSERT_TRUE(chunks.feed("0\r\n\r\n"));
  EXPECT_TRUE(chunks.complete());
}

TEST(ResponseReader, ReadsBodiesByLengthAndToTheEnd) {
  ResponseReader counted;
  ASSERT_TRUE(counted.feed("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nab"));
  EXPECT_FALSE(counted.complete());
  EXPECT_FALSE(counted.end_of_stream());
  ASSERT_TRUE(counted.feed("c"));
  EXPECT_TRUE(counted.complete());
  EXPECT_EQ(counted.status(), 404);
  EXPECT_EQ(counted.take_body(), "abc");

  ResponseReader open;
  ASSERT_TRUE(open.feed("HTTP/1.0 200 OK\r\n\r\nabc"));
  EXPECT_FALSE(open.complete());
  ASSERT_TRUE(open.end_of_stream());
  EXPECT_TRUE(open.complete());
  EXPECT_EQ(open.take_body(), "abc");

  ResponseReader empty;
  ASSERT_TRUE(empty.feed("HTTP/1.1 204 No Content\r\n\r\n"));
  EXPECT_TRUE(empty.complete());
}

TEST(ResponseReader, KnowsWhetherTheConnectionIsLeft) {
  const std::pair<const char*, bool> answers[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true},
      {"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", true},
      {"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\nHTTP/1.1 204 No\r\n\r\n", true},
      {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", false},
      {"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 1\r\n\r\na", false},
      {"HTTP/1.1 200 OK\r\nConnection: x\r\nconnection: close\r\nContent-Length: 0\r\n\r\n",
       false}};
  for (const auto& [bytes, left] : answers) {
    ResponseReader reader;
    ASSERT_TRUE(reader.feed(bytes));
    EXPECT_TRUE(reader.complete());
    EXPECT_EQ(reader.leaves_connection(), left) << bytes;
  }
  ResponseReader open;
  ASSERT_TRUE(open.feed("HTTP/1.1 200 OK\r\n\r\nabc"));
  ASSERT_TRUE(open.end_of_stream());
  EXPECT_FALSE(open.leaves_connection());
}

TEST(ResponseReader, RefusesWhatIsNoHttp) {
  for (const std::string& bytes :
       {std::string("SSH-2.0-x\r\n\r\n"), std::string("HTTP/1.1 abc\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"), std::string(70'000, 'x')}) {
    ResponseReader reader;
    const Status fed = reader.feed(bytes);
    ASSERT_FALSE(fed) << bytes.substr(0, 60);
    EXPECT_EQ(fed.error().code, Code::kCorrupt);
  }
}

TEST(ResponseReader, SurvivesSpoiltBytes) {
  for (uint64_t seed = 0; seed < fuzz_rounds(3000); ++seed) {
    Rng rng(derive_key(seed, "spoil"));
    std::string bytes(kChunked);
    for (uint64_t i = 1 + rng.below(4); i > 0; --i) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    ResponseReader reader;
    SseReader events;
    for (size_t at = 0; at < bytes.size(); at += 7) {
      if (!reader.feed(std::string_view(bytes).substr(at, 7))) break;
      (void)events.feed(reader.take_body(), [](std::string_view) { return Status(); });
    }
  }
}

TEST(SseReader, GivesTheDataOfEachEventForEveryCut) {
  constexpr std::string_view kBytes =
      ": a comment\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata:  lines\r\nid: 5\r\n\r\n"
      "data\n\ndata: [DONE]\n\nno end";
  for (size_t cut = 1; cut <= kBytes.size(); ++cut) {
    SseReader reader;
    std::vector<std::string> got;
    for (size_t at = 0; at < kBytes.size(); at += cut) {
      ASSERT_TRUE(reader.feed(kBytes.substr(at, cut), [&](std::string_view data) {
        got.emplace_back(data);
        return Status();
      }));
    }
    EXPECT_THAT(got, ::testing::ElementsAre("{\"a\":1}", "two\n lines", "[DONE]")) << cut;
  }
}

TEST(SseReader, BoundsAnEvent) {
  SseReader reader;
  const std::string line(size_t{17} << 20, 'x');
  const Status fed = reader.feed(line, [](std::string_view) { return Status(); });
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().code, Code::kExhausted);
}

TEST(HttpClient, SendsAndFetches) {
  PlayedServer server{std::string(kChunked)};
  auto peer = HttpPeer::resolve(server.url() + "/v1");
  ASSERT_TRUE(peer);
  peer->api_key = "abc";
  const auto answer = fetch(*peer, {.method = "POST", .path = "/v1/x", .body = "{}"}, 10);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "hello, big world");
  server.join();
  EXPECT_THAT(server.last_request, HasSubstr("POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(server.last_request, HasSubstr("Authorization: Bearer abc\r\n"));
  EXPECT_THAT(server.last_request, HasSubstr("Content-Length: 2\r\n"));
}

// On a connection of its own a query has not met the end of an unused one.
TEST(HttpClient, TakesATimeoutForAnAnswerOnANewConnection) {
  PlayedServer server("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\nslow");
  const auto answer = fetch(*HttpPeer::resolve(server.url()), {}, 10);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 408);
  EXPECT_EQ(answer->body, "slow");
}

TEST(HttpClient, SaysWhenTheServerHangsUp) {
  PlayedServer server("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf");
  const auto answer = fetch(*HttpPeer::resolve(server.url()), {}, 10);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_THAT(answer.error().message, HasSubstr("before its answer was complete"));
}

TEST(HttpClient, SaysWhenNobodyIsThereOrNobodyAnswers) {
  TestPort port;
  const auto peer = HttpPeer::resolve(port.url());
  const auto refused = fetch(*peer, {}, 10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  port.listen();
  const auto silent = fetch(*peer, {}, 0.05);
  ASSERT_FALSE(silent);
  EXPECT_THAT(silent.error().message, HasSubstr("no answer within"));
}

}  // namespace
}  // namespace jige::api
