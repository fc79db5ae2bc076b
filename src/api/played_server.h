// Servers for tests of clients: a port on loopback that listens or does not, and a server that
// plays a recording to each connection.
//
//   PlayedServer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
//   const auto answer = fetch(*HttpPeer::resolve(server.url()), {}, 10);
//   server.join();
//   EXPECT_THAT(server.last_request, HasSubstr("GET / "));
//
// Threads: one test at a time.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

namespace jige::api::testing {

// A free port, taken but refusing connections until listen(); then they wait for ever, unless
// somebody accepts them.
class TestPort {
 public:
  TestPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  TestPort(const TestPort&) = delete;
  TestPort& operator=(const TestPort&) = delete;
  ~TestPort() { close(fd_); }

  void listen() { EXPECT_EQ(::listen(fd_, 16), 0); }
  int fd() const { return fd_; }
  const std::string& url() const { return url_; }

 private:
  int fd_;
  std::string url_;
};

// Reads one request of each connection, up to the end of its body, gives the same bytes to it and
// hangs up.
class PlayedServer {
 public:
  explicit PlayedServer(std::string answer, int connections = 1) : answer_(std::move(answer)) {
    port_.listen();
    thread_ = std::thread([this, connections] {
      for (int i = 0; i < connections; ++i) play();
    });
  }
  ~PlayedServer() { join(); }

  const std::string& url() const { return port_.url(); }
  // Waits until every connection has been served.
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  // Behind join().
  std::string last_request;

 private:
  void play() {
    const int fd = accept(port_.fd(), nullptr, nullptr);
    last_request.clear();
    char buffer[4096];
    while (!whole()) {
      const ssize_t count = recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      last_request.append(buffer, static_cast<size_t>(count));
    }
    send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    close(fd);
  }
  bool whole() const {
    const size_t head = last_request.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    const size_t length = last_request.find("Content-Length: ");
    if (length == std::string::npos) return true;
    return last_request.size() >= head + 4 + std::stoul(last_request.substr(length + 16));
  }

  TestPort port_;
  const std::string answer_;
  std::thread thread_;
};

}  // namespace jige::api::testing
