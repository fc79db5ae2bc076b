#include "api/request_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
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
    options.on_ended = [this](const EndedRequest& request) { log_->note(request); };
    start(options);
  }
  // The lines, once there are so many.
  std::vector<Json> lines(int64_t count) {
    std::string text;
    EXPECT_TRUE(soon([&] {
      text = *read_file(path_);
      return std::ranges::count(text, '\n') >= count;
    }));
    std::vector<Json> read;
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
  auto log = RequestLog::open("/dev/full");
  ASSERT_TRUE(log) << log.error().message;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) (*log)->note({.id = "x"});
  *log = nullptr;
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("requests are not written down for now: /dev/full: "));
  EXPECT_EQ(told.find("down for now"), told.rfind("down for now"));
  EXPECT_THAT(told, HasSubstr("the last 3 requests that have ended were not written down"));
  EXPECT_FALSE(RequestLog::open("/nowhere/requests.jsonl"));
}

TEST(RequestLog, IsBounded) {
  const std::string path = test_path("requests.jsonl");
  auto log = *RequestLog::open(path, {.bytes_max = 1000});
  for (int i = 0; i < 100; ++i) log->note({.id = std::to_string(i)});
  log = nullptr;  // it writes what waits
  EXPECT_LE(read_file(path)->size(), 1000u);
  EXPECT_LE(read_file(path + ".1")->size(), 1000u);
  EXPECT_THAT(*read_file(path), HasSubstr("\"id\":\"99\""));
}

TEST(RequestLog, SaysWhatIsMissingWhereItGoesOn) {
  const std::string folder = test_path("requests");
  ASSERT_TRUE(make_folders(folder + "/log.1/full"));  // so the file cannot be begun anew
  auto log = *RequestLog::open(folder + "/log", {.bytes_max = 5});
  std::string told;
  ::testing::internal::CaptureStderr();
  log->note({.id = "one"});
  log->note({.id = "two"});
  EXPECT_TRUE(soon([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    told += ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    return told.find("/log.1: ") != std::string::npos;
  }));
  ::testing::internal::GetCapturedStderr();
  std::filesystem::remove_all(folder + "/log.1");
  log->note({.id = "three"});
  log = nullptr;
  const Json line = json_of(*read_file(folder + "/log"));
  EXPECT_EQ(line["id"], "three");
  EXPECT_EQ(line["lost_before"], 1);
}

// A file that takes nothing until it is read: a pipe.
class SlowLog : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = test_path("requests.pipe");
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    reader_ = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader_, 0);
    log_ = *RequestLog::open(path, {.queue_bytes_max = 100'000, .flush_s = 0.1});
  }
  ~SlowLog() override { close(reader_); }

  // More than pipe and queue have room for.
  void note_many() {
    for (int i = 0; i < kMany; ++i) note(std::to_string(noted_++));
  }
  void note(const std::string& id) { log_->note({.id = id, .path = std::string(1000, 'x')}); }
  // Whether the pipe has come to its end.
  bool read_some() {
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(reader_, buffer, sizeof buffer)) > 0) {
      text_.append(buffer, static_cast<size_t>(count));
    }
    return count == 0;
  }

  static constexpr int kMany = 1000;
  int noted_ = 0;
  int reader_ = -1;
  std::shared_ptr<RequestLog> log_;
  std::string text_;
};

TEST_F(SlowLog, HoldsNobodyUpAndCountsWhatItLoses) {
  ::testing::internal::CaptureStderr();
  note_many();  // nobody reads
  ASSERT_TRUE(soon([&] {
    char buffer[8192];
    const ssize_t count = read(reader_, buffer, sizeof buffer - text_.size());
    if (count > 0) text_.append(buffer, static_cast<size_t>(count));
    return text_.size() == sizeof buffer;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // some lines take the place
  note_many();
  // Somebody reads again: from some line on there is room.
  const int before = noted_;
  const auto last_id = [&] {
    const size_t at = text_.rfind("\"id\":\"");
    return at == std::string::npos ? -1 : std::atoi(text_.c_str() + at + 6);
  };
  ASSERT_TRUE(soon([&] {
    note(std::to_string(noted_++));
    read_some();
    return last_id() >= before;
  })) << text_.substr(0, 100);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("takes them too slowly"));
  EXPECT_EQ(told.find("too slowly"), told.rfind("too slowly"));
  log_ = nullptr;
  EXPECT_TRUE(read_some());
  int64_t next = 0, lost_count = 0;
  for (size_t begin = 0; begin < text_.size(); begin = text_.find('\n', begin) + 1) {
    const Json line = json_of(text_.substr(begin, text_.find('\n', begin) - begin));
    const int64_t lost = line.value("lost_before", 0);
    lost_count += lost;
    next += lost;
    EXPECT_EQ(line["id"], std::to_string(next++)) << "each is written, or counted where it was";
  }
  EXPECT_GT(lost_count, kMany / 2);
  EXPECT_EQ(next, noted_);
}

TEST_F(SlowLog, EndsThoughNobodyReads) {
  note_many();
  ::testing::internal::CaptureStderr();
  log_ = nullptr;
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("the last [0-9]+ requests that have ended were not"));
  // What hung in a write ends with it, and writes no more.
  EXPECT_TRUE(soon([&] { return read_some(); }));
  EXPECT_LT(text_.size(), size_t{70'000}) << "a pipe, and that line";
}

}  // namespace
}  // namespace jige::api
