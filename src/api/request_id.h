// The id of a request, by which what its client, routers and servers tell of it can be joined: the
// field x-request-id of requests and of every answer.
//
// A client's own is kept where it is one field of 1 to 128 visible ASCII characters, as it goes
// into logs; any other request gets one that the HTTP server makes (HttpRequest::id). A router
// gives it to the servers, and its answers have it.
// Threads: one caller a RequestIds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace jige::api {

inline constexpr std::string_view kRequestIdField = "x-request-id";

bool is_request_id(std::string_view text);

// Makes ids that no other process makes, as good as surely.
class RequestIds {
 public:
  RequestIds();
  std::string next();

 private:
  const uint64_t key_;
  uint64_t next_number_ = 0;
};

}  // namespace jige::api
