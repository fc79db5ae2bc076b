// Reading the JSON body of a request on the threads of a WorkQueue: the same for a server and a
// router.
//
// Threads: read_body() on the HTTP server's thread; on_body on one of the queue's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "api/api_error.h"
#include "api/http_message.h"
#include "api/work_queue.h"
#include "base/json.h"

namespace jige::api {

// What requests get that come while it stops: 503.
ApiError draining_error();

struct BodyJob {
  // Gets the request as it came, its body included.
  std::function<void(const std::shared_ptr<HttpRequest>& request, const Json& body,
                     const std::shared_ptr<Responder>& respond)>
      on_body;
  const std::atomic<bool>* draining = nullptr;  // from then on bodies that wait are refused unread
};

// Refuses what is compressed (415), no JSON (400), or finds no room in the queue (429).
void read_body(WorkQueue& work, HttpRequest request, const std::shared_ptr<Responder>& respond,
               BodyJob job);

}  // namespace jige::api
