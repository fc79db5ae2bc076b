#include "api/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "api/api_test_support.h"
#include "api/http_server_test_support.h"
#include "api/test_client.h"
#include "base/file.h"
#include "base/test_path.h"

namespace jige::api {
namespace {

using ::testing::HasSubstr;
using testing::json_of;
using ::testing::Not;
using testing::request_text;
using testing::soon;
using testing::TestClient;

class RequestLogTest : public HttpServerTest {
 protected:
  void start_with_log(HttpServerOptions options = {}) {
    path_ = test_path("requests.jsonl");
    log_ = *RequestLog::open(path_);
    options.on_ended = [this](const EndedRequest& request) {
      log_->note(request);
      ++noted_;
    };
    start(options);
  }
  // The lines, once there are so many.
  std::vector<Json> lines(int64_t count) {
    EXPECT_TRUE(soon([&] { return noted_ >= count; }));
    std::vector<Json> read;
    const std::string text = *read_file(path_);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      read.push_back(json_of(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    EXPECT_EQ(std::ssize(read), count) << text;
    read.resize(static_cast<size_t>(count));
    return read;
  }

  std::string path_;
  std::shared_ptr<RequestLog> log_;
  std::atomic<int64_t> noted_{0};
};

TEST_F(RequestLogTest, HasALineForEachAnswer) {
  start_with_log();
  TestClient client(port_);
  client.send(request_text("POST", "/echo?key=secret1", "secret2",
                           "X-Request-ID: mine\r\nAuthorization: Bearer secret3\r\n"));
  const testing::TestResponse echoed = client.read_response();
  client.send(request_text("GET", "/stream"));
  const std::string id = client.read_response().field("x-request-id");
  client.send(request_text("HEAD", "/echo"));
  client.read_response(/*head_only=*/true);
  const std::vector<Json> told = lines(3);
  EXPECT_EQ(told[0]["id"], "mine");
  EXPECT_EQ(told[0]["client"], "127.0.0.1");
  EXPECT_EQ(told[0]["method"], "POST");
  EXPECT_EQ(told[0]["path"], "/echo");
  EXPECT_EQ(told[0]["status"], 200);
  EXPECT_EQ(told[0]["bytes"], echoed.head.size() + echoed.body.size());
  EXPECT_EQ(told[0]["whole"], true);
  EXPECT_THAT(told[0]["time"].get<std::string>(),
              ::testing::MatchesRegex("20..-..-..T..:..:.....*Z"));
  EXPECT_EQ(told[1]["id"], id);
  EXPECT_EQ(told[1]["path"], "/stream");
  EXPECT_EQ(told[1]["whole"], true);
  EXPECT_EQ(told[2]["method"], "HEAD");
  for (const Json& line : told) {
    EXPECT_GE(line["seconds"], 0);
    EXPECT_LT(line["seconds"], 10);
    EXPECT_THAT(dump_json(line), Not(HasSubstr("secret")));
  }
}

TEST_F(RequestLogTest, TellsWhatWasNotAnsweredWhole) {
  start_with_log();
  {
    TestClient waits(port_), listens(port_);
    waits.send(request_text("POST", "/hold", "x"));
    ASSERT_TRUE(soon([&] { return held() == 1; }));
    waits.close();
    lines(1);
    listens.send(request_text("GET", "/events"));
    EXPECT_NE(listens.read_until("data: 1\n\n"), "");
  }
  const std::vector<Json> told = lines(2);
  EXPECT_EQ(told[0]["path"], "/hold");
  EXPECT_TRUE(told[0]["status"].is_null());
  EXPECT_EQ(told[0]["bytes"], 0);
  EXPECT_EQ(told[0]["whole"], false);
  EXPECT_EQ(told[1]["path"], "/events");
  EXPECT_EQ(told[1]["status"], 200);
  EXPECT_GT(told[1]["bytes"], 0);
  EXPECT_EQ(told[1]["whole"], false);
}

// Connections that end without a request, and those that end behind an answer, are none.
TEST_F(RequestLogTest, TellsRefusalsAndNoConnections) {
  HttpServerOptions options;
  options.body_bytes_max = 10;
  start_with_log(options);
  { TestClient silent(port_); }
  testing::fetch(port_, "POST", "/echo?x", std::string(11, 'x'), "X-Request-Id: large\r\n");
  {
    TestClient other(port_);
    other.send("SSH-2.0-x\r\n\r\n");
    EXPECT_EQ(other.read_response().status, 400);
  }
  testing::fetch(port_, "GET", "/echo", "", "Host: second\r\n");
  testing::fetch(port_, "GET", "/drop");
  const std::vector<Json> told = lines(4);
  EXPECT_EQ(told[0]["status"], 413);
  EXPECT_EQ(told[0]["id"], "large");
  EXPECT_EQ(told[0]["path"], "/echo");
  EXPECT_EQ(told[1]["status"], 400);
  EXPECT_EQ(told[2]["status"], 400);
  EXPECT_EQ(told[2]["path"], "/echo");
  EXPECT_EQ(told[3]["status"], 500);
  for (const Json& line : told) EXPECT_EQ(line["whole"], true) << line;
}

// A handler may have an id for its answer: it is the one that the client sees.
TEST(RequestLog, HasTheIdThatTheAnswerHas) {
  std::vector<std::string> ids;
  HttpServerOptions options;
  options.on_ended = [&](const EndedRequest& request) { ids.push_back(request.id); };
  auto server = testing::value_of(
      HttpServer::listen(options, [](HttpRequest, const std::shared_ptr<Responder>& responder) {
        responder->respond({.headers = {{"x-request-id", "its"}}});
      }));
  for (const char* field : {"", "X-Request-Id: mine\r\n"}) {
    testing::fetch(server->port(), "GET", "/", "", field);
  }
  server->stop(1000);
  EXPECT_THAT(ids, ::testing::ElementsAre("its", "mine"));
}

TEST(RequestLog, SaysOnceThatLinesAreMissing) {
  const auto log = RequestLog::open("/dev/full");
  ASSERT_TRUE(log) << log.error().message;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) (*log)->note({.id = "x"});
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("requests are not written down for now: /dev/full: "));
  EXPECT_EQ(told.find("not written down"), told.rfind("not written down"));
  EXPECT_FALSE(RequestLog::open("/nowhere/requests.jsonl"));
}

TEST(RequestLog, IsBounded) {
  const std::string path = test_path("requests.jsonl");
  const auto log = *RequestLog::open(path, 1000);
  for (int i = 0; i < 100; ++i) log->note({.id = std::to_string(i)});
  EXPECT_LE(read_file(path)->size(), 1000u);
  EXPECT_LE(read_file(path + ".1")->size(), 1000u);
  EXPECT_THAT(*read_file(path), HasSubstr("\"id\":\"99\""));
}

}  // namespace
}  // namespace jige::api
