#include "serve/inbox.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace jige::serve {

double retry_after(int64_t waiting_requests, double requests_per_s) {
  constexpr double kSecondsMin = 1;
  constexpr double kSecondsMax = 120;
  if (requests_per_s <= 0) return kSecondsMin;
  const double seconds = std::ceil(static_cast<double>(waiting_requests) / requests_per_s);
  return std::clamp(seconds, kSecondsMin, kSecondsMax);
}

Status Inbox::check_locked(int64_t prompt_tokens, double retry_seconds) const {
  if (closed_) {
    return fail(Code::kUnavailable, "the server is shutting down and takes no new requests");
  }
  if (!paused_.empty()) return fail(Code::kUnavailable, "{}", paused_);
  if (waiting_requests_ >= limits_.requests_max) {
    return fail(Code::kExhausted,
                "{} requests wait and {} may; try again in {:.0f} s, or let more wait",
                waiting_requests_, limits_.requests_max, retry_seconds);
  }
  if (waiting_requests_ > 0 && waiting_prompt_tokens_ + prompt_tokens > limits_.prompt_tokens_max) {
    return fail(Code::kExhausted,
                "requests with {} prompt tokens wait, {} more would come and {} may wait; try "
                "again in {:.0f} s, or let more wait",
                waiting_prompt_tokens_, prompt_tokens, limits_.prompt_tokens_max, retry_seconds);
  }
  return {};
}

Status Inbox::check(int64_t prompt_tokens, double retry_seconds) const {
  const std::lock_guard lock(mutex_);
  return check_locked(prompt_tokens, retry_seconds);
}

Status Inbox::push(Submission submission, double retry_seconds) {
  const auto prompt_tokens = static_cast<int64_t>(submission.request.prompt.size());
  {
    const std::lock_guard lock(mutex_);
    JIGE_DO(check_locked(prompt_tokens, retry_seconds));
    events_.arrivals.push_back(std::move(submission));
    ++waiting_requests_;
    waiting_prompt_tokens_ += prompt_tokens;
  }
  something_came_.notify_one();
  return {};
}

void Inbox::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    events_.cancels.push_back(id);
  }
  something_came_.notify_one();
}

void Inbox::change(PlanChange change) {
  {
    const std::lock_guard lock(mutex_);
    events_.change = std::move(change);
  }
  something_came_.notify_one();
}

void Inbox::pause(std::string why) {
  const std::lock_guard lock(mutex_);
  paused_ = std::move(why);
}

void Inbox::go_on() { pause({}); }

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void Inbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    events_.stop = true;
  }
  something_came_.notify_one();
}

void Inbox::take(Events& events, std::chrono::nanoseconds wait) {
  events.arrivals.clear();
  events.cancels.clear();
  events.change.reset();
  std::unique_lock lock(mutex_);
  const auto came = [&] {
    return events_.stop || events_.change || !events_.arrivals.empty() || !events_.cancels.empty();
  };
  if (wait == kForEver) {
    something_came_.wait(lock, came);
  } else if (wait > kNoWait) {
    something_came_.wait_for(lock, wait, came);
  }
  events.arrivals.swap(events_.arrivals);
  events.cancels.swap(events_.cancels);
  events.change.swap(events_.change);
  events.stop = events_.stop;
}

void Inbox::begun(int64_t prompt_tokens) {
  const std::lock_guard lock(mutex_);
  --waiting_requests_;
  waiting_prompt_tokens_ -= prompt_tokens;
}

bool Inbox::open() const {
  const std::lock_guard lock(mutex_);
  return !closed_;
}

int64_t Inbox::waiting_requests() const {
  const std::lock_guard lock(mutex_);
  return waiting_requests_;
}

int64_t Inbox::waiting_prompt_tokens() const {
  const std::lock_guard lock(mutex_);
  return waiting_prompt_tokens_;
}

}  // namespace jige::serve
