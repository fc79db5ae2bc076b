#include "sim/serve_simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <utility>

namespace jige::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Flight {
  plan::Batch batch;
  double end_s = 0;
  std::vector<double> token_s;  // of each item: when its tokens are told
};

class Simulation {
 public:
  Simulation(std::span<const RequestShape> requests, const ServeSimulationOptions& options,
             SimulationObserver& observer)
      : requests_(requests),
        options_(options),
        observer_(observer),
        scheduler_(options.scheduler),
        rng_(derive_key(options.seed, "serve faults")),
        noise_rng_(derive_key(options.seed, "serve noise")) {
    result_.outcomes.resize(requests.size());
    over_.resize(requests.size());
  }

  Result<ServeSimulationResult> run() {
    for (int64_t i = 0; i < options_.users; ++i) {
      users_ready_s_.push_back(static_cast<double>(i) * options_.turnaround_s);
    }
    for (;;) {
      if (options_.cancel && options_.cancel->load(std::memory_order_relaxed)) {
        return fail(Code::kCancelled, "by a signal");
      }
      land_until_now();
      cancel_until_now();
      while (next_arrival_s() <= now_s_) arrive_next();
      launch();
      const double next_s = next_event_s();
      if (next_s == kNever) break;
      now_s_ = std::max(now_s_, next_s);
    }
    if (!scheduler_.idle()) {
      return fail(Code::kInternal, "after {} iterations requests are left and nothing can run",
                  result_.iterations);
    }
    result_.kv_blocks_live_end = scheduler_.pool().live_count();
    return std::move(result_);
  }

 private:
  using Cancel = std::pair<double, plan::RequestId>;

  double next_arrival_s() const {
    if (next_ >= requests_.size()) return kNever;
    if (options_.users <= 0) return requests_[next_].arrival_s;
    return users_ready_s_.empty() ? kNever : users_ready_s_.front();
  }

  double next_event_s() const {
    double next_s = next_arrival_s();
    if (!flying_.empty()) next_s = std::min(next_s, flying_.front().end_s);
    // Cancels of requests that are over hold nothing up: they are taken when time has come to them.
    if (!cancels_.empty() && !scheduler_.idle()) next_s = std::min(next_s, cancels_.top().first);
    if (stage_free_s_ > now_s_ && !scheduler_.idle()) next_s = std::min(next_s, stage_free_s_);
    return next_s;
  }

  void arrive_next() {
    const auto id = static_cast<plan::RequestId>(next_);
    const RequestShape& shape = requests_[next_++];
    RequestOutcome& outcome = outcome_of(id);
    outcome.start_s = options_.users > 0 ? now_s_ : shape.arrival_s;
    if (options_.users > 0) users_ready_s_.pop_front();
    plan::RequestSpec spec;
    spec.id = id;
    spec.max_new_tokens = static_cast<int32_t>(shape.output_tokens);
    observer_.complete_spec(shape, spec);
    outcome.prompt_tokens = std::ssize(spec.prompt);
    if (!scheduler_.arrive(spec)) {
      outcome.failure = "too large";
      finish(id);
      return;
    }
    observer_.on_arrival(spec);
    if (rng_.uniform() < options_.faults.cancel_share) {
      const double patience_s = -std::log(1 - rng_.uniform()) * options_.faults.cancel_after_s;
      cancels_.emplace(now_s_ + patience_s, id);
    }
    observer_.check(scheduler_);
  }

  void cancel_until_now() {
    while (!cancels_.empty() && cancels_.top().first <= now_s_) {
      const plan::RequestId id = cancels_.top().second;
      cancels_.pop();
      if (over_[static_cast<size_t>(id)]) continue;
      outcome_of(id).failure = "cancelled";
      finish(id);
      for (const plan::RequestId other : scheduler_.cancel(id)) finish(other);
      observer_.check(scheduler_);
    }
  }

  void launch() {
    while (stage_free_s_ <= now_s_) {
      observer_.before_batch(scheduler_);
      std::optional<plan::Batch> batch = scheduler_.next_batch();
      if (!batch) return;
      observer_.on_batch(*batch);
      observer_.check(scheduler_);
      std::vector<double> token_s;
      const double step_s = options_.step.draw_seconds(*batch, token_s, noise_rng_);
      const double stage_s = step_s / options_.scheduler.batches_in_flight_max;
      stage_free_s_ = now_s_ + stage_s;
      const double before_s = flying_.empty() ? 0 : flying_.back().end_s + stage_s;
      result_.busy_s += step_s;
      result_.preemptions += std::ssize(batch->preempted);
      result_.kv_blocks_live_max =
          std::max(result_.kv_blocks_live_max, scheduler_.pool().live_count());
      const double end_s = std::max(now_s_ + step_s, before_s);
      for (double& one_s : token_s) one_s += end_s - step_s;
      flying_.push_back({std::move(*batch), end_s, std::move(token_s)});
    }
  }

  void land_until_now() {
    while (!flying_.empty() && flying_.front().end_s <= now_s_) {
      const Flight flight = std::move(flying_.front());
      const plan::Batch& batch = flight.batch;
      flying_.pop_front();
      result_.computed_tokens += batch.token_count();
      if (rng_.uniform() < options_.faults.lose_share) {
        ++result_.iterations_lost;
        observer_.on_lost(batch);
        for (const plan::RequestId id : scheduler_.lose(batch.id)) finish(id);
      } else {
        ++result_.iterations;
        complete(flight);
      }
      observer_.check(scheduler_);
    }
  }

  void complete(const Flight& flight) {
    const plan::Batch& batch = flight.batch;
    std::vector<plan::SampledNext> sampled;
    for (size_t i = 0; i < batch.items.size(); ++i) {
      if (batch.items[i].samples) sampled.push_back(sample(batch.items[i], flight.token_s[i]));
    }
    observer_.on_complete(batch);
    for (const plan::RequestId id : scheduler_.complete(batch.id, sampled)) finish(id);
  }

  // Row by row, up to the first guess that does not come true.
  plan::SampledNext sample(const plan::WorkItem& item, double token_s) {
    plan::SampledNext next{.request = item.request};
    auto count = static_cast<int32_t>(item.tokens.size()) - item.draft_count;
    for (;; ++count, ++next.accepted) {
      next.finished = rng_.uniform() < options_.faults.stop_share;
      next.token = observer_.next_token(item, count);
      if (!over_[static_cast<size_t>(item.request)]) outcome_of(item.request).token_came(token_s);
      if (next.finished || next.accepted == item.draft_count) return next;
      if (item.tokens[static_cast<size_t>(count)] != next.token) return next;
    }
  }

  void finish(plan::RequestId id) {
    if (over_[static_cast<size_t>(id)]) return;
    over_[static_cast<size_t>(id)] = true;
    outcome_of(id).end_s = std::max(now_s_, outcome_of(id).start_s);
    observer_.on_over(id);
    if (options_.users > 0) user_is_free();
  }

  void user_is_free() {
    const double before_s = users_ready_s_.empty() ? now_s_ : users_ready_s_.back();
    users_ready_s_.push_back(std::max(now_s_, before_s) + options_.turnaround_s);
  }

  RequestOutcome& outcome_of(plan::RequestId id) {
    return result_.outcomes[static_cast<size_t>(id)];
  }

  std::span<const RequestShape> requests_;
  const ServeSimulationOptions& options_;
  SimulationObserver& observer_;
  plan::ServeScheduler scheduler_;
  Rng rng_;
  Rng noise_rng_;  // its own, so that faults are the same with and without noise
  ServeSimulationResult result_;
  std::vector<bool> over_;
  std::deque<Flight> flying_;
  std::priority_queue<Cancel, std::vector<Cancel>, std::greater<>> cancels_;
  size_t next_ = 0;
  std::deque<double> users_ready_s_;  // closed loop: when users send their next request, ascending
  double now_s_ = 0;
  double stage_free_s_ = 0;
};

}  // namespace

void SimulationObserver::complete_spec(const RequestShape& shape, plan::RequestSpec& spec) {
  // Blocks with the number of the request in front match no others.
  spec.prompt.resize(static_cast<size_t>(shape.prompt_tokens));
  spec.prompt.front() = static_cast<int32_t>(spec.id);
}

Result<ServeSimulationResult> simulate_serve(std::span<const RequestShape> requests,
                                             const ServeSimulationOptions& options,
                                             SimulationObserver* observer) {
  SimulationObserver none;
  return Simulation(requests, options, observer ? *observer : none).run();
}

}  // namespace jige::sim
