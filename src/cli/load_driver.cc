#include "cli/load_driver.h"

#include <algorithm>

namespace jige::cli {
namespace {

constexpr double kStopPollSeconds = 0.1;

class Driver {
 public:
  Driver(std::span<const sim::RequestShape> requests, int64_t users, LoadTarget& target)
      : requests_(requests), closed_loop_(users > 0), free_users_(users), target_(target) {
    run_.outcomes.resize(requests.size());
    starts_.resize(requests.size());
  }

  LoadRun run(const std::atomic<bool>& stop, const std::function<void(int64_t)>& on_progress) {
    std::vector<LoadTarget::Finished> finished;
    while (over_ < std::ssize(run_.outcomes)) {
      if (stop && !run_.stopped) give_up();
      send_what_is_due();
      finished.clear();
      target_.wait(seconds_to_wait(), finished);
      for (LoadTarget::Finished& one : finished) take(std::move(one));
      if (on_progress && !finished.empty()) on_progress(over_);
    }
    return std::move(run_);
  }

 private:
  bool may_send() const { return next_ < run_.outcomes.size(); }

  void give_up() {
    run_.stopped = true;
    run_.outcomes.resize(next_);
    target_.cancel_all();
  }

  void send_what_is_due() {
    while (may_send()) {
      const double now_s = target_.now_s();
      const sim::RequestShape& shape = requests_[next_];
      if (closed_loop_ ? free_users_ == 0 : shape.arrival_s > now_s) return;
      starts_[next_] = closed_loop_ ? now_s : shape.arrival_s;
      run_.late_s_max = std::max(run_.late_s_max, now_s - starts_[next_]);
      --free_users_;
      target_.send(next_++, shape);
    }
  }

  double seconds_to_wait() const {
    if (!may_send() || closed_loop_) return kStopPollSeconds;
    const double due_s = requests_[next_].arrival_s - target_.now_s();
    return std::clamp(due_s, 0.0, kStopPollSeconds);
  }

  void take(LoadTarget::Finished one) {
    one.outcome.start_s = starts_[one.index];
    const bool whole = one.outcome.output_tokens >= requests_[one.index].output_tokens;
    run_.short_count += one.outcome.failure.empty() && !whole;
    run_.outcomes[one.index] = std::move(one.outcome);
    ++over_;
    ++free_users_;
  }

  std::span<const sim::RequestShape> requests_;
  const bool closed_loop_;
  int64_t free_users_;
  LoadTarget& target_;
  LoadRun run_;
  std::vector<double> starts_;
  size_t next_ = 0;
  int64_t over_ = 0;
};

}  // namespace

LoadRun drive_load(std::span<const sim::RequestShape> requests, int64_t users, LoadTarget& target,
                   const std::atomic<bool>& stop,
                   const std::function<void(int64_t over)>& on_progress) {
  return Driver(requests, users, target).run(stop, on_progress);
}

}  // namespace jige::cli
