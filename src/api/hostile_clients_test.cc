// Clients that behave badly, by the hundred, beside one that does not: it gets the bytes it would
// get alone, memory stays where it was, nothing is left behind, and whatever is answered is well
// formed.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <map>
#include <thread>

#include "api/protocol_test_support.h"
#include "api/service_test_support.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::completion_body;
using testing::frames_of;
using testing::json_of;
using testing::request_text;
using testing::soon;
using testing::TestClient;
using testing::TestServer;
using testing::text_of;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // sanitizers keep what is freed
#else
constexpr bool kMemoryIsOurs = true;
#endif

int64_t resident_bytes() {
  const std::string pages = testing::value_of(read_file("/proc/self/statm"));
  return std::atoll(pages.c_str() + pages.find(' ')) * sysconf(_SC_PAGESIZE);
}

// Raises the limit of descriptors; false where that is not allowed.
bool allow_descriptors(rlim_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= count) return true;
  limit.rlim_cur = count;
  limit.rlim_max = std::max(limit.rlim_max, count);  // root may
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Asks again and again until the object goes; every answer must be the same.
class HonestClient {
 public:
  explicit HonestClient(TestServer& server)
      : expected_(text_of(server.post("/v1/completions", kBody))), thread_([this, &server] {
          while (!stop_) {
            const auto response = server.post("/v1/completions", kBody);
            EXPECT_EQ(response.status, 200) << response.body;
            if (response.status != 200) return;
            EXPECT_EQ(text_of(response), expected_);
            ++answers_;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));  // hostile ones want it, too
          }
        }) {}
  ~HonestClient() {
    stop_ = true;
    thread_.join();
  }
  int answers() const { return answers_; }

 private:
  inline static const std::string kBody = completion_body(7, 20);
  const std::string expected_;
  std::atomic<bool> stop_{false};
  std::atomic<int> answers_{0};
  std::thread thread_;
};

TEST(HostileClients, AThousandIdleConnectionsHarmNobody) {
  constexpr int kIdle = 1000;
  // Both ends of every connection are descriptors of this process.
  if (!allow_descriptors(2 * kIdle + 200)) {
    GTEST_SKIP() << "the limit of open files is too low, and raising it is not allowed";
  }
  TestServer server({.http = {.connections_max = kIdle + 50}});
  const std::string expected = text_of(server.post("/v1/completions", completion_body(3, 20)));
  std::vector<TestClient> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.emplace_back(server.port());
    ASSERT_TRUE(idle.back().connected()) << i;
    if (i % 4 == 1) idle.back().send("POST /v1/completions HTTP/1.1\r\nHost: te");
    if (i % 4 == 2) idle.back().send(request_text("GET", "/health"));  // kept alive behind it
    if (i % 4 == 3) idle.back().send("POST /tokenize HTTP/1.1\r\nContent-Length: 50\r\n\r\n{");
  }
  ASSERT_TRUE(soon([&] { return server.http_stats().connections_open == kIdle; }));
  const int64_t before_bytes = resident_bytes();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(text_of(server.post("/v1/completions", completion_body(3, 20))), expected);
  }
  if (kMemoryIsOurs) {
    EXPECT_LT(resident_bytes() - before_bytes, 4 << 20);
  }
  // They are still served: nobody was sent away for them, and they for nobody.
  EXPECT_EQ(server.http_stats().connections_refused, 0);
  for (size_t i : {0u, 4u, 996u}) {
    idle[i].send(request_text("GET", "/health"));
    EXPECT_EQ(idle[i].read_response().status, 200) << i;
  }
  EXPECT_EQ(idle[2].read_response().status, 200);
  for (TestClient& client : idle) client.reset();
  EXPECT_TRUE(soon([&] { return server.http_stats().connections_open == 0; }));
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(HostileClients, WhatALargeBodyTookGoesBackToTheSystem) {
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // long texts, such as the client's, go back by themselves
  TestServer server;
  ASSERT_EQ(server.post("/v1/completions", completion_body(3, 2)).status, 200);
  const int64_t before_bytes = resident_bytes();
  std::string lists;
  for (int i = 0; i < 500000; ++i) lists += "[],";
  const std::string body = completion_body(3, 2, R"(,"passed_over":[)" + lists + "[]]");
  EXPECT_EQ(server.post("/v1/completions", body).status, 200);
  if (!kMemoryIsOurs) return;
  // As JSON the lists take several times as much; the texts are still there.
  EXPECT_TRUE(soon([&] { return resident_bytes() - before_bytes < 16 << 20; }))
      << resident_bytes() - before_bytes;
}

// What a hostile client does with its connection before it is dropped.
enum class Trick {
  kResetInHead,
  kResetInBody,
  kResetInAnswer,
  kResetBeforeAnswer,
  kHalfClosed,
  kReadsNothing,
  kSaysNothing,
  kStopsInHead,
  kSpeaksNoHttp,
  kCount,
};

void play(Trick trick, TestClient& client) {
  const std::string streamed =
      request_text("POST", "/v1/completions", completion_body(8, 60, R"(,"stream":true)"));
  switch (trick) {
    case Trick::kResetInHead:
      client.send(streamed.substr(0, 30));
      return client.reset();
    case Trick::kResetInBody:
      client.send(streamed.substr(0, streamed.size() - 10));
      return client.reset();
    case Trick::kResetInAnswer:
      client.send(streamed);
      client.read_until("data: {");
      return client.reset();
    case Trick::kResetBeforeAnswer:
      client.send(request_text("POST", "/v1/completions", completion_body(9, 60, R"(,"n":4)")));
      return client.reset();
    case Trick::kHalfClosed:
      client.send(streamed);
      return client.shutdown_write();
    case Trick::kReadsNothing:  // of more than a stream may leave unsent
      client.send(request_text("POST", "/v1/completions",
                               completion_body(8, 60, R"(,"stream":true,"n":4,"logprobs":20)")));
      return;
    case Trick::kSaysNothing:
      return;
    case Trick::kStopsInHead:
      client.send("POST /v1/completions HTTP/1.1\r\nContent-Le");
      return;
    case Trick::kSpeaksNoHttp:
      client.send(std::string("\x16\x03\x01\0\xff\xfe\r\n\r\n\0", 12));
      return;
    case Trick::kCount:
      return;
  }
}

TEST(HostileClients, LeaveNothingBehindAndHarmNobody) {
  TestServer server({.http = {.output_bytes_max = 20'000,
                              .request_timeout_ms = 100,
                              .idle_timeout_ms = 100,
                              .write_timeout_ms = 200}});
  constexpr int kRounds = 32;
  constexpr int kWarmUp = 8;
  constexpr int kClients = 9;
  int64_t before_bytes = 0;
  {
    const HonestClient honest(server);
    for (int round = 0; round < kRounds; ++round) {
      Rng rng(derive_key(static_cast<uint64_t>(round), "hostile clients"));
      std::vector<TestClient> clients;
      for (int i = 0; i < kClients; ++i) {
        clients.emplace_back(server.port(), 4096);
        play(static_cast<Trick>(rng.below(static_cast<uint64_t>(Trick::kCount))), clients.back());
      }
      // The honest client is answered while these are there.
      if (round % 4 == 3) {
        EXPECT_TRUE(soon([&] { return honest.answers() > round / 4; }));
      }
      // Some rounds are left to the server's time limits: nothing else ends a client that has
      // vanished.
      if (round % 16 == 15) {
        EXPECT_TRUE(soon([&] { return server.http_stats().connections_open <= 1; }));
      }
      if (round == kWarmUp) before_bytes = resident_bytes();
      ASSERT_FALSE(HasFailure()) << "round " << round;
    }
  }
  EXPECT_TRUE(soon([&] { return server.http_stats().connections_open == 0; }));
  EXPECT_TRUE(soon([&] { return server.idle(); })) << "blocks or requests are left";
  if (kMemoryIsOurs) {
    // A leak of 8 KiB a client would show.
    EXPECT_LT(resident_bytes() - before_bytes, (kRounds - kWarmUp) * kClients * 8192);
  }
  EXPECT_EQ(server.get("/health").status, 200);
}

// An error as programs read it, or a whole answer.
void expect_well_formed(const testing::TestResponse& response, const std::string& sent) {
  SCOPED_TRACE(sent.substr(0, 200));
  ASSERT_TRUE(response.status == 200 || response.status == 400 || response.status == 404 ||
              response.status == 413)
      << response.status;
  if (response.field("Content-Type") != "application/json") {
    if (response.body.starts_with("event: ")) {
      testing::events_of(response.body);
    } else {
      frames_of(response.body);
    }
    return;
  }
  const Json json = json_of(response.body);
  if (response.status == 200) {
    ASSERT_TRUE(json.value("error", Json()).is_null());
    return;
  }
  ASSERT_TRUE(json.contains("error"));
  const Json& error = json["error"];
  EXPECT_FALSE(error["message"].get<std::string>().empty());
  EXPECT_FALSE(error["type"].get<std::string>().empty());
  if (json.value("type", "") == "error") return;  // in the form that has no more
  EXPECT_TRUE(error["param"].is_null() || error["param"].is_string());
  EXPECT_TRUE(error["code"].is_null() || error["code"].is_string());
}

// A body of every route that takes one.
const std::pair<std::string, std::string> kGoodBodies[] = {
    {"/v1/completions",
     R"({"prompt":["ab",[5,6]],"max_tokens":3,"n":2,"stop":["x"],"logit_bias":{"5":-1.5},)"
     R"("logprobs":2,"min_tokens":1,"stop_token_ids":[9],"temperature":1.5,"top_k":7})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",)"
     R"("text":"\u00e9</s>"}]}],"max_completion_tokens":3,"top_logprobs":2,"logprobs":true,)"
     R"("chat_template_kwargs":{"shout":1},"seed":-9,"stream_options":{}})"},
    {"/v1/responses",
     R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},)"
     R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"b"}]},)"
     R"({"role":"assistant","content":"c"}],)"
     R"("instructions":"s","max_output_tokens":3,"reasoning":{"effort":"low"},"stream":true})"},
    {"/v1/messages",
     R"({"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a"}]},)"
     R"({"role":"assistant","content":[{"type":"thinking","thinking":"b"},{"type":"text",)"
     R"("text":"c"}]},{"role":"user","content":"d"}],"max_tokens":3,"stop_sequences":["x"],)"
     R"("thinking":{"type":"enabled","budget_tokens":9},"stream":false,"top_k":3})"},
    {"/v1/messages/count_tokens",
     R"({"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"none"}})"},
    {"/tokenize", R"({"prompt":"Once upon","return_token_strs":true})"},
    {"/detokenize", R"({"tokens":[5,6,7]})"},
};

TEST(HostileClients, MutatedBodiesGetWellFormedErrors) {
  TestServer server;
  const HonestClient honest(server);
  const std::vector<std::string> snippets = {"null",
                                             "-1",
                                             "1e308",
                                             "1e99999",
                                             "99999999999999999999",
                                             "[[[[",
                                             "{}",
                                             "\"\"",
                                             "2",
                                             "0.5",
                                             "\"stream\":true,",
                                             "95",
                                             "96",
                                             "true",
                                             "\\u0000",
                                             "\\ud800",
                                             "\xf0\x9f",
                                             "\xc0\x80",
                                             std::string(1, '\0'),
                                             std::string(3000, '['),
                                             std::string(3000, '9')};
  std::map<int, int> statuses;
  for (uint64_t seed = 0; seed < fuzz_rounds(300); ++seed) {
    Rng rng(derive_key(seed, "body mutation"));
    const auto& [path, good] = kGoodBodies[seed % std::size(kGoodBodies)];
    std::string body = good;
    for (uint64_t i = rng.below(4); i > 0; --i) {
      body.replace(rng.below(body.size()), 1 + rng.below(3),
                   rng.below(3) == 0 ? std::string(1, static_cast<char>(rng.below(256)))
                                     : snippets[rng.below(snippets.size())]);
    }
    const auto response = server.post(path, body);
    ++statuses[response.status];
    expect_well_formed(response, body);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(statuses[200], 30);
  EXPECT_GT(statuses[400], 100);
  EXPECT_GT(honest.answers(), 5);
}

TEST(HostileClients, BodiesThatAreNoRequestGetWellFormedErrors) {
  TestServer server({.http = {.body_bytes_max = size_t{1} << 18}});
  const HonestClient honest(server);
  const std::vector<std::string> bodies = {
      "",
      std::string(1, '\0'),
      std::string("{\"prompt\":\"a\0b\"}", 16),
      "{\"prompt\":\"\xff\xfe\"}",
      "{\"prompt\":\"\\ud800\"}",
      "\xef\xbb\xbf{\"prompt\":\"a\"",
      R"({"max_tokens":1e400,"prompt":"a"})",
      R"({"prompt":")" + std::string(225'000, 'a') + R"("})",
  };
  // Which no route sees: they end where JSON is read, or before.
  const std::vector<std::string> unread = {
      R"({"max_tokens":)" + std::string(100'000, '9') + R"(,"prompt":"a"})",
      R"({"temperature":)" + std::string("-0.") + std::string(100'000, '0') + "1" + "}",
      R"({"prompt":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      std::string(200'000, '['),
      R"({"a":)" + std::string(200'000, '{'),
      std::string(250'000, ' '),
      R"({"prompt":")" + std::string(275'000, 'a') + R"("})",
  };
  const auto post = [&](const std::string& path, const std::string& body) {
    const auto response = server.post(path, body);
    EXPECT_NE(response.status, path == "/tokenize" ? 0 : 200) << path << body.substr(0, 40);
    expect_well_formed(response, path + body);
  };
  size_t turn = 0;
  for (const auto& [path, good] : kGoodBodies) {
    for (const std::string& body : bodies) post(path, body);
    for (size_t i = 0; i < unread.size(); ++i) {
      if ((turn + i) % 3 == 0) post(path, unread[i]);
    }
    ++turn;
  }
}

}  // namespace
}  // namespace jige::api
