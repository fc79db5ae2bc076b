// Streams whose first token is long in coming: they begin all the same, with comments, and errors
// behind that are in the stream; but nothing is said while the engine stalls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <regex>

#include "api/protocol_test_support.h"
#include "api/service_test_support.h"

namespace jige::api {
namespace {

using testing::events_of;
using testing::frames_of;
using testing::json_of;
using testing::masked;
using testing::request_text;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;

struct StreamKind {
  std::string path;
  std::string body;
};

const StreamKind kStreamKinds[] = {
    {"/v1/completions", R"({"prompt":"Hello","seed":3,"max_tokens":9,"n":2,"stream":true})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":"Hello"}],"seed":3,"n":2,"stream":true})"},
    {"/v1/responses", R"({"input":"Hello","seed":3,"max_output_tokens":9,"stream":true})"},
    {"/v1/messages",
     R"({"messages":[{"role":"user","content":"Hello"}],"seed":3,"max_tokens":9,"stream":true})"}};

// As an old client, whose answer is not in chunks.
std::string old_request(const StreamKind& kind) {
  return std::regex_replace(request_text("POST", kind.path, kind.body), std::regex("HTTP/1.1"),
                            "HTTP/1.0");
}

std::string without_comments(const std::string& stream) {
  return std::regex_replace(stream, std::regex(":\n\n"), "");
}

// A server that makes no iteration until it is told to.
struct HeldServer {
  explicit HeldServer(serve::EngineOptions engine = {}, int64_t pause_ms = 50)
      : server({.engine = std::move(engine), .http = {.event_pause_ms = pause_ms}}) {
    server.iterations().allow(0);
  }
  // Sends it and waits for the head and two comments; then the iterations go on, and all that
  // comes behind is given.
  std::string late_stream(const StreamKind& kind) {
    TestClient client(server.port());
    client.send(old_request(kind));
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
    EXPECT_NE(head.find("text/event-stream"), std::string::npos) << head;
    EXPECT_NE(head.find("X-Accel-Buffering: no"), std::string::npos) << head;
    EXPECT_NE(head.find("x-request-id: "), std::string::npos) << head;
    EXPECT_EQ(client.read_until(":\n\n"), ":\n\n") << "nothing but a comment";
    EXPECT_EQ(client.read_until(":\n\n"), ":\n\n") << "and again";
    server.iterations().open();
    return without_comments(client.read_until(""));
  }

  TestServer server;
};

TEST(LateStream, BeginsAndBringsWhatAPromptOneBrings) {
  for (const StreamKind& kind : kStreamKinds) {
    SCOPED_TRACE(kind.path);
    TestServer prompt;
    const std::string wanted = prompt.post(kind.path, kind.body).body;
    HeldServer held;
    EXPECT_EQ(masked(held.late_stream(kind)), masked(wanted));
    EXPECT_TRUE(soon([&] { return held.server.idle(); }));
  }
}

TEST(LateStream, AnErrorBehindItsBeginningIsInTheStream) {
  serve::EngineOptions engine;
  engine.faults.on_logits = [](serve::RequestId, int32_t, std::span<float> logits) {
    logits[0] = std::numeric_limits<float>::quiet_NaN();
  };
  for (const StreamKind& kind : kStreamKinds) {
    SCOPED_TRACE(kind.path);
    HeldServer held(engine);
    const std::string stream = held.late_stream(kind);
    if (kind.path == "/v1/responses" || kind.path == "/v1/messages") {
      const bool messages = kind.path == "/v1/messages";
      const std::vector<Json> events = events_of(stream);
      ASSERT_EQ(events.size(), 3u) << stream;
      EXPECT_EQ(events[0]["type"], messages ? "message_start" : "response.created");
      EXPECT_EQ(events[2]["type"], messages ? "error" : "response.failed");
      EXPECT_TRUE((messages ? events[2] : events[2]["response"])["error"]["message"].is_string());
    } else {
      const std::vector<Json> frames = frames_of(stream, false);
      ASSERT_EQ(frames.size(), kind.path == "/v1/completions" ? 1u : 3u) << stream;
      EXPECT_EQ(frames.back()["error"]["type"], "server_error");
    }
  }
}

// Nothing is said while nothing moves, and so the error is a status.
TEST(LateStream, DoesNotBeginWhileTheEngineStalls) {
  serve::EngineOptions engine;
  engine.stall_seconds_max = 0.05;
  std::atomic<bool> broken{true};
  engine.faults.on_logits = [&](serve::RequestId, int32_t, std::span<float> logits) {
    if (broken) logits[0] = std::numeric_limits<float>::quiet_NaN();
  };
  HeldServer held(engine, 300);
  TestClient client(held.server.port());
  client.send(request_text("POST", kStreamKinds[0].path, kStreamKinds[0].body));
  EXPECT_TRUE(soon([&] { return held.server.get("/health").status == 503; }));
  EXPECT_EQ(client.read_until("HTTP", 700), "");
  held.server.iterations().open();
  EXPECT_EQ(client.read_response().status, 500);
  broken = false;
  EXPECT_EQ(held.server.post(kStreamKinds[0].path, kStreamKinds[0].body).status, 200);
}

TEST(LateStream, WholeAnswersWaitInSilence) {
  HeldServer held;
  TestClient client(held.server.port());
  client.send(request_text("POST", "/v1/completions", testing::completion_body(1, 3)));
  EXPECT_EQ(client.read_until("HTTP", 300), "");
  held.server.iterations().open();
  EXPECT_EQ(client.read_response().status, 200);
}

// A client that goes while it has seen no more than comments gives its request up.
TEST(LateStream, EndsWithItsClient) {
  HeldServer held;
  {
    TestClient client(held.server.port());
    client.send(
        old_request({kStreamKinds[0].path, testing::completion_body(1, 60, R"(,"stream":true)")}));
    EXPECT_NE(client.read_until(":\n\n"), "");
  }
  EXPECT_TRUE(soon([&] { return held.server.http_stats().connections_open == 0; }));
  held.server.iterations().open();
  EXPECT_TRUE(soon([&] { return held.server.idle(); }));
  EXPECT_THAT(held.server.get("/metrics").body,
              ::testing::Not(::testing::HasSubstr("finished_reason=\"length\"} 1")));
}

}  // namespace
}  // namespace jige::api
