// Random traces against the serving scheduler: options, requests and faults (cancels, exhaustion,
// lost workers, early stops) are drawn from a seed, and every step is checked.
//
//   JIGE_TRY(const TraceCounts counts, run_checked_trace(seed));
//
// What is checked beyond ServeScheduler::check_invariants():
//   (1) a stand-in for the cache holds the tokens written to each block, and with which adapter:
//       every item of a complete batch reads its own request's tokens, of its adapter, and nobody
//       else's; with states, each slot holds its request's tokens before every item, kept ones
//       those that it began with, and who has drafts that may be wrong a spare one besides
//   (2) batches keep the limits on requests, tokens and preemptions; no request is in two at once
//   (3) at the end no block is live, and every request that was not cancelled has its whole answer
//   (4) work: iterations never exceed the tokens there are, each computed at most once more than
//       its request was preempted or, with states, lost a batch
//   (5) no starvation: where nobody may overtake (reserved blocks, equal priorities, no fair share)
//       a request is over after at most one iteration a token of itself and of those in front of
//       it, with whole prompts one a piece of a prompt and a new token, times the batches in
//       flight; each lost one lets those beside it pass and, with states, makes its requests begin
//       again. With the static policy this holds for its last token: then
//       it waits for its batch. With rounds prompts behind it may come between: one batch of
//       them, in up to three pieces with kept states, in round_steps iterations
//   (6) rounds: no batch has prompts and next tokens, and in none begin more than round_prompts
// In some traces settings change at any time: limits are then those in force, and (5) is left out.
// Threads: values; seeds may run on different threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/serve_simulation.h"

namespace jige::sim {

struct TraceCounts {
  int64_t traces = 0;
  int64_t requests = 0;
  int64_t cancelled = 0;
  int64_t iterations = 0;
  int64_t iterations_lost = 0;
  int64_t preemptions = 0;
  int64_t cached_tokens = 0;  // found in the prefix cache
  int64_t drafted_tokens = 0;
  int64_t accepted_tokens = 0;    // of them
  int64_t restarts = 0;           // with states: of requests, by lost batches
  int64_t kept_state_tokens = 0;  // of cached_tokens: of requests that began with a kept state
  int64_t changes = 0;            // of settings, that came into force
  TraceCounts& operator+=(const TraceCounts& other);
};

// Fails with kInternal, naming the seed and what was broken. An invariant of the scheduler that
// fails ends the process.
Result<TraceCounts> run_checked_trace(uint64_t seed);

struct TraceSetup {
  ServeSimulationOptions options;
  std::vector<RequestShape> requests;
  bool priorities = false;
  bool drafts = false;   // some of them wrong
  bool changes = false;  // of settings
};
TraceSetup draw_trace(uint64_t seed);

// The checks as an observer.
class TraceChecker final : public SimulationObserver {
 public:
  TraceChecker(const TraceSetup& setup, uint64_t seed);

  void complete_spec(const RequestShape& shape, plan::RequestSpec& spec) override;
  void on_arrival(const plan::RequestSpec& spec) override;
  void before_batch(plan::ServeScheduler& scheduler) override;
  void on_batch(const plan::Batch& batch) override;
  void on_lost(const plan::Batch& batch) override;
  int32_t next_token(const plan::WorkItem& item, int32_t count) override;
  void on_complete(const plan::Batch& batch) override;
  void on_over(plan::RequestId id) override;
  void check(const plan::ServeScheduler& scheduler) override;
  // After the run.
  void check_end(const ServeSimulationResult& result);

  // What was broken first, if anything.
  const std::optional<std::string>& violation() const { return violation_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t drafted_tokens() const { return drafted_tokens_; }
  int64_t accepted_tokens() const { return accepted_tokens_; }
  int64_t restarts() const;
  int64_t kept_state_tokens() const { return kept_state_tokens_; }
  int64_t changes() const { return changes_; }

 private:
  struct Tracked {
    std::vector<int32_t> tokens;  // prompt and answer
    int32_t adapter = plan::kBaseAdapter;
    int64_t prompt_tokens = 0;
    int64_t tokens_max = 0;      // of both
    int64_t iterations_max = 0;  // that it takes part in
    int64_t deadline = 0;        // by turns_
    int32_t preemptions = 0;
    int32_t restarts = 0;  // with states: lost batches
    bool began = false;
    bool over = false;
    bool in_flight = false;
  };

  void broken(std::string what);
  Tracked& at(plan::RequestId id) { return requests_[static_cast<size_t>(id)]; }
  // What a token's keys and values come of.
  struct Cell {
    int32_t token = 0;
    int32_t adapter = 0;
  };
  Cell& cell(plan::BlockId block, int32_t position);
  // What the cache holds of the item's sequence, up to the first `count` of its tokens.
  std::vector<int32_t> context(const plan::WorkItem& item, int32_t count);
  void land(const plan::Batch& batch);
  std::vector<int32_t>& state(int32_t slot) { return states_.at(static_cast<size_t>(slot)); }
  // Checks what the item's slot holds, and feeds it the item's tokens.
  void feed_state(const plan::WorkItem& item);
  // The slot that keeps the state before drafts of an item, or that it needs none.
  void check_spare(const plan::WorkItem& item);
  void check_deadline(plan::RequestId id);
  void check_round(const plan::Batch& batch);
  // Iterations that may pass until a request has taken part in so many.
  int64_t iterations_for(int64_t own) const;
  // Of a prompt, where it runs whole: borders of kept states cut it.
  int64_t pieces_max() const;

  // What the scheduler is told, and what of it is in force in the batch that it gives.
  void change_settings(plan::ServeScheduler& scheduler);
  void follow_change(const plan::ServeScheduler& scheduler, const plan::Batch& batch);
  void draft(plan::ServeScheduler& scheduler);

  const TraceSetup& setup_;
  plan::ServeSchedulerOptions limits_;  // in force
  int32_t places_;                      // of a batch
  const plan::ServeScheduler* scheduler_ = nullptr;
  Rng rng_;
  Rng draft_rng_;
  Rng certain_rng_;
  Rng adapter_rng_;
  Rng change_rng_;
  std::vector<Cell> cells_;
  std::vector<std::vector<int32_t>> states_;
  std::vector<Tracked> requests_;
  // Complete iterations, less those that a lost one may have let pass.
  int64_t turns_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t kept_state_tokens_ = 0;
  int64_t drafted_tokens_ = 0;
  int64_t accepted_tokens_ = 0;
  int64_t changes_ = 0;
  std::optional<std::string> violation_;
};

}  // namespace jige::sim
