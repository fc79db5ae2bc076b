// `jige route` as its users meet it: real servers behind it, one of them killed, a list that
// changes, and the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using api::testing::fetch;
using api::testing::request_text;
using api::testing::TestClient;
using api::testing::TestResponse;
using ::testing::HasSubstr;

// A `jige route` that runs beside the test.
class Routing {
 public:
  explicit Routing(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"route", "--port", "0", "--probe-seconds", "0.05"});
    process_ = std::make_unique<Process>(arguments, folder_.path());
    const std::string mark = "listening on http://127.0.0.1:";
    for (int i = 0; i < 2000 && process_->running(); ++i) {
      const std::string out = exists(folder_ / "out") ? read_text(folder_ / "out") : "";
      const size_t at = out.find(mark);
      if (at != std::string::npos && out.find('\n', at) != std::string::npos) {
        port_ = static_cast<uint16_t>(std::atoi(out.c_str() + at + mark.size()));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "jige route does not listen: " << read_text(folder_ / "err");
  }
  Process& process() { return *process_; }
  // What it has said of troubles so far.
  std::string err() const { return read_text(folder_ / "err"); }
  uint16_t port() const { return port_; }
  TestResponse post(const std::string& path, const std::string& body) const {
    return fetch(port_, "POST", path, body);
  }
  // The servers, once this is true of them.
  Json servers_when(const std::function<bool(const Json& servers)>& condition) const {
    Json servers;
    for (int i = 0; i < 1000; ++i) {
      servers = *parse_json(fetch(port_, "GET", "/top").body, "/top");
      servers = servers["servers"];
      if (condition(servers)) return servers;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << servers;
    return servers;
  }
  void wait_for_up(size_t count) const {
    servers_when([&](const Json& servers) {
      return servers.size() == count &&
             std::ranges::all_of(servers, [](const Json& one) { return one["state"] == "up"; });
    });
  }

 private:
  TestFolder folder_;
  std::unique_ptr<Process> process_;
  uint16_t port_ = 0;
};

std::string server_url(const Serving& server) {
  return "http://127.0.0.1:" + std::to_string(server.port());
}

std::string greedy(int tokens, bool stream) {
  return R"({"prompt":"A small story","ignore_eos":true,"temperature":0,"max_tokens":)" +
         std::to_string(tokens) + R"(,"stream":)" + (stream ? "true}" : "false}");
}

TEST(Route, GoesOnWhereAServerIsKilled) {
  Serving one({TinyRun::get().run(), "--threads", "1"});
  Serving two({TinyRun::get().run(), "--threads", "1"});
  Routing routing({"--to", server_url(one), "--to", server_url(two), "--policy", "round-robin"});
  routing.wait_for_up(2);
  const auto text_of = [](const TestResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return (*parse_json(response.body, "an answer"))["choices"][0]["text"];
  };
  const Json direct = text_of(one.post("/v1/completions", greedy(20, false)));
  EXPECT_EQ(text_of(routing.post("/v1/completions", greedy(20, false))), direct);

  // Two streams, one at each; then the first server is gone.
  TestClient first(routing.port()), second(routing.port());
  for (TestClient* client : {&first, &second}) {
    client->send(request_text("POST", "/v1/completions", greedy(100, true)));
    ASSERT_NE(client->read_until("\n\n"), "");
  }
  one.process().send(SIGKILL);
  int whole = 0, cut = 0;
  for (TestClient* client : {&first, &second}) {
    const std::string rest = client->read_until("0\r\n\r\n");
    whole += rest.find("data: [DONE]") != std::string::npos ? 1 : 0;
    cut += rest.find("\"code\":\"server_lost\"") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(whole + cut, 2) << "each ends as it should";
  EXPECT_GE(whole, 1);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(text_of(routing.post("/v1/completions", greedy(20, false))), direct);
  }
  const Json servers = routing.servers_when(
      [](const Json& all) { return all[0]["state"] == "down" && all[1]["requests"] == 0; });
  EXPECT_EQ(servers[1]["state"], "up");
  const Outcome top =
      run_jige({"top", "http://127.0.0.1:" + std::to_string(routing.port()), "--once"});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr(server_url(one)));
  EXPECT_THAT(top.out, HasSubstr("down"));
  routing.process().send(SIGTERM);
  EXPECT_EQ(routing.process().wait().exit_code, 0);
}

// Asks until it is told to stop, with streams and whole answers in turns.
class Asking {
 public:
  Asking(uint16_t port, std::string text) : port_(port), text_(std::move(text)) {}
  ~Asking() { stop(); }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int64_t answered() const { return answered_; }
  // Behind stop(): what came in place of answers.
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void run() {
    for (bool stream = false; !stopping_; stream = !stream) {
      const TestResponse response = fetch(port_, "POST", "/v1/completions", greedy(20, stream));
      const bool whole =
          response.status == 200 &&
          (stream ? response.body.ends_with("data: [DONE]\n\n") : text_of(response) == text_);
      if (!whole) failures_.push_back(response.head + response.body);
      ++answered_;
    }
  }
  static std::string text_of(const TestResponse& response) {
    const auto json = parse_json(response.body, "an answer");
    return json ? (*json)["choices"][0]["text"].get<std::string>() : "";
  }

  const uint16_t port_;
  const std::string text_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> answered_{0};
  std::vector<std::string> failures_;
  std::thread thread_{[this] { run(); }};  // the last one: it uses the others
};

// Servers are restarted one after the other, as their software is renewed: nobody notices.
TEST(Route, LosesNothingWhereServersAreRestartedInTurns) {
  const std::vector<std::string> arguments = {TinyRun::get().run(), "--threads", "1"};
  std::vector<std::unique_ptr<Serving>> servers;
  for (int i = 0; i < 2; ++i) servers.push_back(std::make_unique<Serving>(arguments));
  Routing routing({"--to", server_url(*servers[0]), "--to", server_url(*servers[1])});
  routing.wait_for_up(2);
  const auto one = parse_json(routing.post("/v1/completions", greedy(20, false)).body, "an answer");
  ASSERT_TRUE(one);
  std::vector<std::unique_ptr<Asking>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(
        std::make_unique<Asking>(routing.port(), (*one)["choices"][0]["text"].get<std::string>()));
  }
  for (std::unique_ptr<Serving>& server : servers) {
    const size_t index = server == servers[0] ? 0 : 1;
    const uint16_t port = server->port();
    server->process().send(SIGTERM);
    EXPECT_EQ(server->process().wait().exit_code, 0) << "it finishes what it has";
    routing.servers_when([&](const Json& all) { return all[index]["state"] == "down"; });
    server = std::make_unique<Serving>(arguments, port);
    routing.wait_for_up(2);
    const int64_t before =
        routing.servers_when([](const Json&) { return true; })[index]["requests_total"];
    routing.servers_when([&](const Json& all) { return all[index]["requests_total"] > before; });
  }
  int64_t answered = 0;
  for (const auto& client : clients) {
    client->stop();
    answered += client->answered();
    EXPECT_THAT(client->failures(), ::testing::IsEmpty());
  }
  EXPECT_GT(answered, 20);
}

// The router itself is told to stop: streams end as they would, and new requests are refused.
TEST(Route, FinishesWhatIsUnderWay) {
  Serving server({TinyRun::get().run(), "--threads", "1"});
  Routing routing({"--to", server_url(server)});
  routing.wait_for_up(1);
  TestClient streams[3] = {TestClient(routing.port()), TestClient(routing.port()),
                           TestClient(routing.port())};
  for (TestClient& client : streams) {
    client.send(request_text("POST", "/v1/completions", greedy(100, true)));
    ASSERT_NE(client.read_until("\n\n"), "");
  }
  routing.process().send(SIGTERM);
  while (fetch(routing.port(), "GET", "/ready").status == 200) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const TestResponse refused = routing.post("/v1/completions", greedy(5, false));
  if (refused.status != 0) {  // it may be gone by then
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.field("Retry-After"), ::testing::Not(""));
    EXPECT_THAT(refused.body, HasSubstr("draining"));
  }
  for (TestClient& client : streams) {
    EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("data: [DONE]"));
  }
  EXPECT_EQ(routing.process().wait().exit_code, 0);
}

// What a router and its server write down of a request can be joined.
TEST(Route, WritesDownWhatItsServersWriteDown) {
  const TestFolder folder;
  std::string own;  // of what the server is asked itself
  const auto ids_of = [&](const std::string& file) {
    std::map<std::string, Json> ids;
    const std::string text = read_text(folder / file);
    for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      const Json line = *parse_json(text.substr(begin, text.find('\n', begin) - begin), file);
      if (line["method"] == "POST") ids[line["id"].get<std::string>()] = line;
    }
    return ids;
  };
  {
    Serving one({TinyRun::get().run(), "--threads", "1", "--request-log", folder / "one.jsonl"});
    Routing routing({"--to", server_url(one), "--request-log", folder / "route.jsonl"});
    routing.wait_for_up(1);
    for (const bool stream : {false, true}) {
      EXPECT_EQ(routing.post("/v1/completions", greedy(5, stream)).status, 200);
    }
    EXPECT_EQ(fetch(routing.port(), "POST", "/v1/completions", greedy(5, false),
                    "X-Request-ID: of-client\r\n")
                  .field("x-request-id"),
              "of-client");
    own = one.post("/v1/completions", greedy(5, false)).field("x-request-id");
    routing.process().send(SIGTERM);
    EXPECT_EQ(routing.process().wait().exit_code, 0);
    one.process().send(SIGTERM);
    EXPECT_EQ(one.process().wait().exit_code, 0);
  }
  const auto routed = ids_of("route.jsonl"), served = ids_of("one.jsonl");
  EXPECT_EQ(routed.size(), 3U);
  EXPECT_EQ(routed.count("of-client"), 1U);
  EXPECT_EQ(served.size(), 4U);
  EXPECT_EQ(served.count(own), 1U) << own;
  for (const auto& [id, line] : routed) {
    ASSERT_EQ(served.count(id), 1U) << id;
    EXPECT_EQ(line["status"], 200);
    EXPECT_GE(line["seconds"], served.at(id)["seconds"]);
  }
  expect_error(run_jige({"route", "--to", "http://127.0.0.1:1", "--request-log", "/nowhere/x"}), 7,
               {"--request-log", "/nowhere/x"});
}

TEST(Route, ReadsTheListOfItsServersAgain) {
  Serving one({TinyRun::get().run(), "--threads", "1"});
  Serving two({TinyRun::get().run(), "--threads", "1"});
  const TestFolder folder;
  const std::string list = folder / "servers.txt";
  write_text(list, "# ours\n" + server_url(one) + "\n");
  Routing routing({"--servers", list});
  routing.wait_for_up(1);
  write_text(list, server_url(one) + "\n" + server_url(two) + "\n");
  routing.wait_for_up(2);
  // The first leaves while it answers: it finishes.
  TestClient client(routing.port());
  client.send(request_text("POST", "/v1/completions", greedy(100, true)));
  ASSERT_NE(client.read_until("\n\n"), "");
  write_text(list, "no server at all:\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  routing.wait_for_up(2);  // a list that cannot be read changes nothing
  write_text(list, server_url(two));
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("data: [DONE]"));
  const Json servers = routing.servers_when([](const Json& all) { return all.size() == 1; });
  EXPECT_EQ(servers[0]["address"], server_url(two));
  EXPECT_EQ(routing.post("/v1/completions", greedy(5, false)).status, 200);
}

TEST(Route, AsksEachServerWithItsOwnKey) {
  const TestFolder folder;
  const std::string keys[] = {folder / "one", folder / "two", folder / "servers"};
  write_text(keys[0], "key-of-one\n");
  write_text(keys[1], "key-of-two\n");
  Serving one({TinyRun::get().run(), "--threads", "1", "--api-key-file", keys[0]});
  Serving two({TinyRun::get().run(), "--threads", "1", "--api-key-file", keys[1]});
  write_text(keys[2], server_url(one) + " key-of-one\nkey-of-all\n");
  Routing routing({"--to", server_url(one), "--to", server_url(two), "--server-key-file", keys[2],
                   "--policy", "round-robin"});
  routing.servers_when([](const Json& all) {
    return all[0]["state"] == "up" &&
           all[1]["trouble"] == "GET /v1/models: HTTP 401; --server-key-file names its key";
  });
  write_text(keys[2], "key-of-all key-of-two\n");  // no such line: nothing changes
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(routing.post("/v1/completions", greedy(5, false)).status, 200);
  write_text(keys[2], server_url(one) + " key-of-one\n" + server_url(two) + " key-of-two\n" +
                          "http://127.0.0.1:1 key-of-none\n");
  routing.wait_for_up(2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(routing.post("/v1/completions", greedy(5, false)).status, 200);
  }
  const Json servers = routing.servers_when([](const Json& all) { return all.size() == 2; });
  EXPECT_GE(servers[1]["requests_total"], 2);
  EXPECT_THAT(routing.err(), HasSubstr("has a key for http://127.0.0.1:1,"));
  EXPECT_THAT(routing.err(), HasSubstr("servers and keys stay as they were"));
  EXPECT_THAT(routing.err(), ::testing::Not(HasSubstr("key-of")));
}

// Others ask the first server themselves: what the router sends goes to the second meanwhile.
TEST(Route, GoesAroundAServerThatIsBusyForOthers) {
  Serving one({TinyRun::get().run(), "--threads", "1"});
  Serving two({TinyRun::get().run(), "--threads", "1"});
  Routing routing({"--to", server_url(one), "--to", server_url(two)});
  routing.wait_for_up(2);
  std::atomic<bool> stopping{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 6; ++i) {
    others.emplace_back([&] {
      while (!stopping) EXPECT_EQ(one.post("/v1/completions", greedy(100, false)).status, 200);
    });
  }
  routing.servers_when([](const Json& all) { return all[0]["other_requests"] > 3; });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(routing.post("/v1/completions", greedy(20, false)).status, 200);
  }
  const Json busy = routing.servers_when([](const Json& all) { return all[1]["requests"] == 0; });
  EXPECT_EQ(busy[0]["requests_total"], 0);
  EXPECT_EQ(busy[1]["requests_total"], 3);
  EXPECT_LT(busy[1]["other_requests"].get<double>(), 1) << "its own are none of others";
  stopping = true;
  for (std::thread& other : others) other.join();
  routing.servers_when([](const Json& all) { return all[0]["other_requests"] < 0.5; });
}

TEST(Route, SaysWhichServerHasNeverAnswered) {
  const Routing routing({"--to", "http://127.0.0.1:1"});
  const std::string told = "warning: http://127.0.0.1:1 gets no requests for now: cannot connect";
  for (int i = 0; i < 1000 && routing.err().find(told) == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(routing.err(), HasSubstr(told));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // some more probes
  const std::string err = routing.err();
  EXPECT_EQ(err.find(told), err.rfind(told)) << "once";
}

TEST(Route, SaysWhatIsWrongAtTheStart) {
  expect_error(run_jige({"route"}), 2, {"--to URL", "--servers FILE"});
  expect_error(run_jige({"route", "--to", "http://127.0.0.1:1", "--servers", "x"}), 2,
               {"not by both"});
  expect_error(run_jige({"route", "--to", "https://127.0.0.1:1", "--server-ca", "/nowhere/ca.pem"}),
               3, {"--server-ca", "/nowhere/ca.pem"});
  expect_error(run_jige({"route", "--to", "http://127.0.0.1:1", "--to", "127.0.0.1:1"}), 2,
               {"is there twice"});
  expect_error(run_jige({"route", "--servers", "/nowhere/servers.txt"}), 3, {"servers.txt"});
}

TEST(Route, IsSimulated) {
  const std::vector<std::string> arguments = {"simulate",        "route", "--users", "12",
                                              "--conversations", "40",    "--json"};
  const Outcome first = run_jige(arguments), second = run_jige(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  const JsonLines lines = first.json_lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2]["policy"], "prefix");
  EXPECT_GT(lines[2]["cached_share"], lines[0]["cached_share"]);
  for (const char* bad : {"1,,2", "1,2,3,4,5", "0", "fast", "1,nan"}) {
    expect_error(run_jige({"simulate", "route", "--servers", "4", "--speeds", bad}), 2,
                 {"--speeds"});
  }
  expect_error(run_jige({"simulate", "route", "--policies", "prefix,round-robbin"}), 2,
               {"--policies", "round-robbin", "round-robin"});
}

}  // namespace
}  // namespace jige::integration
