// A router in front of servers that a test plays, all on loopback.
//
//   PlayedUpstream one("one"), two("two");
//   RoutedServers routed({one.url(), two.url()});
//   EXPECT_EQ(routed.post("/v1/completions", R"({"prompt":"x"})").body, …);
//
// Threads: one test at a time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/api_test_support.h"
#include "api/http_server.h"
#include "api/played_server.h"
#include "api/route_service.h"
#include "api/router.h"
#include "api/test_client.h"

namespace jige::api::testing {

// A server that says what it is told to: by default its name, whole or as two events.
class PlayedUpstream {
 public:
  using Answer = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;

  explicit PlayedUpstream(std::string name, std::vector<std::string> models = {"tiny"},
                          HttpServerOptions options = {})
      : name_(std::move(name)), models_(std::move(models)) {
    http_ = value_of(HttpServer::listen(options, [this](HttpRequest request, auto responder) {
      take(std::move(request), std::move(responder));
    }));
  }
  ~PlayedUpstream() { kill(); }

  std::string url() const { return url_of("127.0.0.1"); }
  std::string url_of(const std::string& host) const {
    return "http://" + host + ":" + std::to_string(http_->port());
  }
  // From now on; it is called on the server's thread.
  void answer_with(Answer answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  // What it answers to GET /metrics; empty: 404.
  void set_metrics(std::string metrics) {
    const std::lock_guard lock(mutex_);
    metrics_ = std::move(metrics);
  }
  int64_t metrics_asked() const { return metrics_asked_; }
  void set_models(std::vector<std::string> models) {
    const std::lock_guard lock(mutex_);
    models_ = std::move(models);
  }
  // Ends all connections and listens no more.
  void kill() { http_->stop(0); }

  int64_t asked() const { return asked_; }
  HttpRequest last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  // What it was probed with last.
  std::string probe_key() const {
    const std::lock_guard lock(mutex_);
    return probe_key_;
  }
  std::atomic<int> health_status{200};

 private:
  void take(HttpRequest request, std::shared_ptr<Responder> responder) {
    if (request.path == "/health") {
      return responder->respond({.status = health_status, .body = "{}"});
    }
    const std::lock_guard lock(mutex_);
    if (request.path == "/v1/models") {
      probe_key_ = request.header("Authorization");
      Json data = Json::array();
      for (const std::string& model : models_) data.push_back({{"id", model}, {"at", name_}});
      return responder->respond(json_response({{"object", "list"}, {"data", data}}));
    }
    if (request.path == "/metrics") {
      ++metrics_asked_;
      return responder->respond({.status = metrics_.empty() ? 404 : 200, .body = metrics_});
    }
    last_ = request;
    answer(std::move(request), std::move(responder));
    ++asked_;  // behind what the answer has done, which the test may look at then
  }

  void answer(HttpRequest request, std::shared_ptr<Responder> responder) {
    if (answer_) return answer_(std::move(request), std::move(responder));
    if (request.body.find("\"stream\":true") == std::string::npos) {
      return responder->respond({.body = "{\"from\":\"" + name_ + "\"}"});
    }
    responder->begin({.content_type = "text/event-stream"});
    responder->write("data: " + name_ + "\n\ndata: [DONE]\n\n");
    responder->end();
  }

  const std::string name_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::string> models_;
  std::string metrics_, probe_key_;
  Answer answer_;
  HttpRequest last_;
  std::atomic<int64_t> asked_{0}, metrics_asked_{0};
  std::unique_ptr<HttpServer> http_;
};

// Refuses, as a server whose queue is full or that drains.
inline PlayedUpstream::Answer refuse_with(int status, std::string retry_after = "1") {
  return [=](HttpRequest, const std::shared_ptr<Responder>& responder) {
    responder->respond({.status = status,
                        .headers = {{"Retry-After", retry_after}},
                        .body = "{\"refused\":" + std::to_string(status) + "}"});
  };
}

// Times that suit tests: what takes seconds takes a moment.
inline RouterOptions quick_router() {
  RouterOptions options;
  options.health = {.probe_s = 0.05,
                    .backoff_s = 0.05,
                    .backoff_max_s = 0.1,
                    .rest_min_s = 0.01,
                    .rest_max_s = 0.05};
  options.connect_s = 1;
  options.probe_answer_s = 0.5;
  return options;
}

class RoutedServers {
 public:
  explicit RoutedServers(const std::vector<std::string>& urls,
                         RouterOptions options = quick_router(), RouteServiceOptions service = {},
                         HttpServerOptions http = {},
                         const std::map<std::string, std::string>& keys = {})
      : router_(value_of(Router::start(std::move(options)))),
        service_(std::move(service), *router_),
        http_(value_of(HttpServer::listen(http, service_.handler()))) {
    service_.set_http_stats([this] { return http_->stats(); });
    set_servers(urls, keys);
  }
  ~RoutedServers() {
    service_.stop();
    http_->stop(0);
    router_->stop();
  }

  // Waits until all of them take requests. `keys`: of those that have one, by URL.
  void set_servers(const std::vector<std::string>& urls,
                   const std::map<std::string, std::string>& keys = {}) {
    std::vector<HttpPeer> peers;
    for (const std::string& url : urls) {
      peers.push_back(value_of(HttpPeer::resolve(url)));
      if (const auto key = keys.find(url); key != keys.end()) peers.back().api_key = key->second;
    }
    router_->set_servers(std::move(peers));
    const auto count = static_cast<int64_t>(urls.size());
    EXPECT_TRUE(soon([&] { return servers_up() == count; })) << get("/top").body;
  }
  int64_t servers_up() { return json_of(get("/health").body)["servers_up"].get<int64_t>(); }
  Json top() { return json_of(get("/top").body); }

  uint16_t port() const { return http_->port(); }
  Router& router() { return *router_; }
  RouteService& service() { return service_; }
  TestResponse post(std::string_view path, std::string_view body, std::string_view fields = "") {
    return fetch(port(), "POST", path, body, fields);
  }
  TestResponse get(std::string_view path, std::string_view fields = "") {
    return fetch(port(), "GET", path, "", fields);
  }

 private:
  std::unique_ptr<Router> router_;
  RouteService service_;
  std::unique_ptr<HttpServer> http_;
};

inline constexpr const char* kAsk = R"({"prompt":"x"})";
inline constexpr const char* kAskStream = R"({"prompt":"x","stream":true})";

inline constexpr const char* kAskedPath = "/v1/completions";

// A number that /top has of a server.
inline int64_t count_of(RoutedServers& routed, size_t server, const char* name) {
  return routed.top()["servers"][server][name].get<int64_t>();
}

// Answers probes as a server does, and everything else with these bytes, and hangs up.
class RawUpstream {
 public:
  explicit RawUpstream(std::string bytes) : bytes_(std::move(bytes)) {
    port_.listen();
    thread_ = std::thread([this] { run(); });
  }
  ~RawUpstream() {
    stopping_ = true;
    thread_.join();
  }
  const std::string& url() const { return port_.url(); }
  int64_t asked() const { return asked_; }
  int64_t told() const { return told_; }
  // Connections are taken and nothing is said any more, to probes neither.
  void hang() { hanging_ = true; }

 private:
  void run() {
    std::vector<int> held;
    while (!stopping_) {
      pollfd entry{.fd = port_.fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 10) <= 0) continue;
      const int fd = accept(port_.fd(), nullptr, nullptr);
      if (hanging_) {
        held.push_back(fd);
      } else {
        play(fd);
      }
    }
    for (const int fd : held) close(fd);
  }
  void play(int fd) {
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t count = recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      request.append(buffer, static_cast<size_t>(count));
    }
    std::string answer = bytes_;
    if (request.starts_with("GET /health")) {
      answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    } else if (request.starts_with("GET /v1/models")) {
      answer = "HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"id\":\"tiny\"}]}";
    } else if (request.starts_with("GET /metrics")) {
      ++told_;  // with the bytes: what they are must not matter
    } else {
      ++asked_;
    }
    send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    while (recv(fd, buffer, sizeof buffer, 0) > 0) {
    }
    close(fd);
  }

  TestPort port_;
  const std::string bytes_;
  std::atomic<bool> stopping_{false}, hanging_{false};
  std::atomic<int64_t> asked_{0}, told_{0};
  std::thread thread_;
};

}  // namespace jige::api::testing
