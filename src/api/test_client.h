// What tests talk to a server with: a raw socket on loopback, and as much HTTP as an answer needs.
//
// Threads: one test at a time; a client belongs to one thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace jige::api::testing {

inline constexpr int kWaitMs = 10'000;

struct TestResponse {
  int status = 0;
  std::string head;
  std::string body;
  // The value of a field of the head, in the spelling the server uses.
  std::string field(const std::string& name) const {
    const size_t begin = head.find("\r\n" + name + ": ");
    if (begin == std::string::npos) return {};
    const size_t value = begin + name.size() + 4;
    return head.substr(value, head.find("\r\n", value) - value);
  }
};

class TestClient {
 public:
  // `receive_bytes` > 0 makes the kernel's receive buffer small.
  explicit TestClient(uint16_t port, int receive_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  TestClient(TestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        received_(std::move(other.received_)) {}
  TestClient& operator=(TestClient&&) = delete;
  ~TestClient() { close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  // False when the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void shutdown_write() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Ends the connection with a reset.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  // What has come up to the end of `mark`, taken out; with "" what came until the end. Empty when
  // the time is up or the server closed before.
  std::string read_until(std::string_view mark, int wait_ms = kWaitMs) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    for (;;) {
      const size_t at = mark.empty() ? std::string::npos : received_.find(mark);
      if (at != std::string::npos) return take(at + mark.size());
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (!receive(static_cast<int>(std::max<int64_t>(left.count(), 0)))) break;
    }
    return mark.empty() ? take(received_.size()) : std::string();
  }

  // The next answer; status 0 when none came.
  TestResponse read_response(bool head_only = false) {
    TestResponse response;
    do {
      response.head = read_until("\r\n\r\n");
    } while (response.head.starts_with("HTTP/1.1 100"));
    if (response.head.size() < 12) return response;
    response.status = std::atoi(response.head.c_str() + 9);
    if (head_only) return response;
    if (response.field("Transfer-Encoding") == "chunked") {
      for (;;) {
        const std::string size = read_until("\r\n");
        const size_t bytes = std::strtoul(size.c_str(), nullptr, 16);
        const std::string chunk = read_bytes(bytes + 2);
        if (bytes == 0 || chunk.size() < bytes) break;
        response.body += chunk.substr(0, bytes);
      }
    } else if (!response.field("Content-Length").empty()) {
      response.body =
          read_bytes(std::strtoul(response.field("Content-Length").c_str(), nullptr, 10));
    } else {
      response.body = read_until("");
    }
    return response;
  }

  // Whether the server ends the connection within the time.
  bool ended(int wait_ms = kWaitMs) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    while (std::chrono::steady_clock::now() < end) {
      if (!receive(50) && over_) return true;
    }
    return over_;
  }

 private:
  std::string take(size_t size) {
    std::string taken = received_.substr(0, size);
    received_.erase(0, size);
    return taken;
  }
  std::string read_bytes(size_t size) {
    while (received_.size() < size && receive(kWaitMs)) {
    }
    return take(std::min(size, received_.size()));
  }
  // False when nothing came in time or nothing can come any more.
  bool receive(int wait_ms) {
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, wait_ms) <= 0) return false;
    char buffer[65536];
    const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
    over_ = count <= 0;
    if (count > 0) received_.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  int fd_;
  bool connected_ = false;
  bool over_ = false;
  std::string received_;
};

inline std::string request_text(std::string_view method, std::string_view path,
                                std::string_view body = "", std::string_view fields = "") {
  std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
  text += fields;
  if (!body.empty() || method == "POST") {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return text + "\r\n" + std::string(body);
}

// One request on a connection of its own.
inline TestResponse fetch(uint16_t port, std::string_view method, std::string_view path,
                          std::string_view body = "", std::string_view fields = "") {
  TestClient client(port);
  client.send(request_text(method, path, body, fields));
  return client.read_response();
}

// Waits for something another thread does; whether it was so once, since it need not stay so.
template <typename Condition>
bool soon(Condition condition, int wait_ms = 5000) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  for (int looks = 0; !condition(); ++looks) {
    if (std::chrono::steady_clock::now() >= until) return false;
    // A look may be a request: those that wait for long look less often.
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + std::min(looks / 8, 7)));
  }
  return true;
}

}  // namespace jige::api::testing
