// Inbox: the bounded queue between those who submit requests and the engine's thread.
//
// A request waits from push() until the engine calls begun() for it, whether it lies here or with
// the scheduler; that is what the limits count. Requests that run are not counted: the cache blocks
// bound them.
// Invariant: what take() has handed out is never handed out again; nothing is pushed after close().
// Threads: push, cancel, change, close, stop and the queries from any thread; take, begun, pause
// and go_on from one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/serve_drift.h"
#include "plan/serve_settings.h"
#include "serve/engine_request.h"

namespace jige::serve {

struct Submission {
  RequestId id = 0;
  EngineRequest request;
  std::shared_ptr<RequestSink> sink;
  int64_t submit_ns = 0;
};

struct InboxLimits {
  int64_t requests_max = 0;
  int64_t prompt_tokens_max = 0;
};

// How long a refused client should wait: until those who wait now have been served, at the rate of
// late; between one second and two minutes, and one second while nothing has been measured.
double retry_after(int64_t waiting_requests, double requests_per_s);

// Another plan for the engine.
struct PlanChange {
  plan::ServeSettings settings;
  plan::PlannedLoad planned;
};

class Inbox {
 public:
  struct Events {
    std::vector<Submission> arrivals;
    std::vector<RequestId> cancels;  // of arrivals in the same events, too
    std::optional<PlanChange> change;
    bool stop = false;
  };

  explicit Inbox(InboxLimits limits) : limits_(limits) {}

  // Whether a request with this many prompt tokens would be taken now. One that alone is above the
  // token limit is taken when nothing else waits. Fails with kUnavailable after close() and after
  // pause(), with kExhausted when the queue is full, saying that one should come again in
  // `retry_seconds`.
  Status check(int64_t prompt_tokens, double retry_seconds) const;
  // Fails as check() does.
  Status push(Submission submission, double retry_seconds);
  void cancel(RequestId id);
  // In place of one that was not taken yet.
  void change(PlanChange change);
  // Nothing is taken for now, and check() says why; until go_on().
  void pause(std::string why);
  void go_on();
  // Nothing more is taken.
  void close();
  // close(), and take() says so.
  void stop();

  // How long take() waits until something comes.
  static constexpr std::chrono::nanoseconds kNoWait{0};
  static constexpr auto kForEver = std::chrono::nanoseconds::max();
  // Moves out what has come.
  void take(Events& events, std::chrono::nanoseconds wait);
  // A waiting request has begun, or is over without having begun.
  void begun(int64_t prompt_tokens);

  bool open() const;
  int64_t waiting_requests() const;
  int64_t waiting_prompt_tokens() const;

 private:
  Status check_locked(int64_t prompt_tokens, double retry_seconds) const;

  const InboxLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable something_came_;
  Events events_;
  bool closed_ = false;
  std::string paused_;  // why; empty: it is not
  int64_t waiting_requests_ = 0;
  int64_t waiting_prompt_tokens_ = 0;
};

}  // namespace jige::serve
