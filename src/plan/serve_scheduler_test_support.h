// What the tests of the serving scheduler share: random traces run against a stand-in for the
// model.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/rng.h"
#include "plan/serve_scheduler.h"
#include "plan/toy_engine_test_support.h"

namespace jige::plan {

inline ServeSchedulerOptions options_of(ServePolicy policy, Admission admission,
                                        int32_t block_count) {
  ServeSchedulerOptions options;
  options.policy = policy;
  options.admission = admission;
  options.batch_requests_max = 6;
  options.batch_tokens_max = 11;
  options.sample_rows_max = 9;
  options.round_prompts = 2;
  options.round_steps = 3;
  options.pool = {.block_count = block_count, .block_tokens = kBlockTokens};
  return options;
}

struct Expected {
  std::vector<int32_t> prompt;
  int32_t max_new_tokens = 0;
  uint64_t sample = 0;
  std::vector<int32_t> generated;
  bool cancelled = false;
  bool over = false;
  std::vector<PrefixHash> prefixes;  // of the prompt's whole blocks; with kept states
};

// Runs a random trace of arrivals, cancels, lost batches and lost caches to its end and checks
// every step. With states some answers end early, and some forks are not made.
class TraceRun {
 public:
  TraceRun(ServeSchedulerOptions options, uint64_t seed, bool priorities, bool drafts = false)
      : options_(options),
        priorities_(priorities),
        drafts_(drafts),
        scheduler_(options),
        states_(options.state_count > 0),
        engine_(options.pool.block_count, options.state_count + options.kept_state_count),
        rng_(derive_key(seed, "trace")),
        losses_(derive_key(seed, "losses")),
        claims_(derive_key(seed, "claims")) {}

  int64_t accepted = 0;            // drafted tokens that came true
  int64_t went_back = 0;           // states, behind a wrong one
  int64_t ran_again = 0;           // tokens that were right, in front of it
  int64_t without_spare = 0;       // drafts that were said to be certain
  int64_t claims_broken = 0;       // and were not
  int64_t copies = 0;              // of states
  int64_t copies_overwritten = 0;  // of those: another request begins in what was copied
  int64_t copies_ahead = 0;        // the fork is not in the batch
  int64_t copies_lost = 0;
  int64_t restarts = 0;  // of requests that had a state, at their first tokens
  int64_t kept = 0;      // copies of states for later prompts
  int64_t kept_lost = 0;
  int64_t kept_replaced = 0;  // begun from in the batch that overwrites them
  int64_t begun_at_kept = 0;
  // Where prompts are to have runs of tokens that no batch cuts: of so many at most.
  int32_t run_tokens_max = 0;
  int64_t whole_runs = 0;      // that ran from their first token
  int64_t rests_of_runs = 0;   // whose beginning was cached
  int64_t budgets_passed = 0;  // by a run

  void run(int request_count) {
    int steps = 0;
    while (request_count > 0 || !scheduler_.idle()) {
      ASSERT_LT(++steps, 20000) << "no progress";
      if (request_count > 0 && rng_.below(3) == 0) {
        arrive();
        --request_count;
      }
      if (rng_.below(40) == 0) cancel();
      if (flying_.empty() && losses_.below(60) == 0) {
        scheduler_.lose_caches();
        engine_.lose_all();
      }
      step();
      scheduler_.check_invariants();
      if (flying_.empty()) check_kept_states();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.pool().live_count(), 0) << "blocks leaked";
    EXPECT_EQ(accepted > 0, may_draft());
    for (const auto& [id, request] : expected_) {
      if (request.cancelled) continue;
      EXPECT_TRUE(request.over) << "request " << id << " never ended";
      std::vector<int32_t> tokens = request.prompt;
      for (int32_t i = 0; i < request.max_new_tokens; ++i) {
        tokens.push_back(ToyEngine::next_token(tokens, request.sample));
      }
      EXPECT_EQ(request.generated,
                std::vector<int32_t>(tokens.begin() + static_cast<int64_t>(request.prompt.size()),
                                     tokens.end()))
          << "request " << id;
    }
  }

 private:
  bool may_draft() const { return drafts_ && !(states_ && options_.batches_in_flight_max > 1); }

  void arrive() {
    RequestSpec spec;
    spec.id = next_id_++;
    if (options_.kept_state_count > 0 && rng_.below(3) == 0) spec.prompt = earlier_turns();
    const size_t shared = spec.prompt.empty() ? rng_.below(3) * 5
                                              : 0;  // common beginnings, so that the cache is used
    for (size_t i = 0; i < shared; ++i) spec.prompt.push_back(static_cast<int32_t>(i));
    for (int i = 0; run_tokens_max > 0 && i < 2; ++i) add_run(spec);
    for (size_t i = 1 + rng_.below(12); i > 0; --i) {
      spec.prompt.push_back(static_cast<int32_t>(rng_.below(50)));
    }
    spec.max_new_tokens = static_cast<int32_t>(1 + rng_.below(9));
    if ((states_ || options_.policy != ServePolicy::kStatic) && rng_.below(4) == 0) {
      spec.fork_count = static_cast<int32_t>(1 + rng_.below(2));
    }
    spec.tenant = rng_.below(3);
    if (priorities_) spec.priority = static_cast<int32_t>(rng_.below(3));
    expected_[spec.id] = {.prompt = spec.prompt,
                          .max_new_tokens = spec.max_new_tokens,
                          .prefixes = prefixes_of(spec.prompt)};
    forks_[spec.id] = spec.fork_count;
    runs_[spec.id] = spec.whole_runs;
    ASSERT_TRUE(scheduler_.arrive(std::move(spec)));
  }

  // One of three, whose tokens name it, behind a token or more.
  void add_run(RequestSpec& spec) {
    if (rng_.below(3) == 0) return;
    const auto content = static_cast<int32_t>(rng_.below(3));
    for (size_t i = rng_.below(3); i > 0; --i) spec.prompt.push_back(7);
    const auto begin = static_cast<int32_t>(spec.prompt.size());
    const int32_t count = run_tokens_max / (1 + content);
    for (int32_t i = 0; i < count; ++i) spec.prompt.push_back(1000 * (1 + content) + i);
    spec.whole_runs.push_back({begin, begin + count});
  }

  void check_runs(const Batch& batch) {
    for (const WorkItem& item : batch.items) {
      const int32_t end = item.context_count + static_cast<int32_t>(item.tokens.size());
      size_t named = 0;
      for (const TokenRun& run : runs_.at(item.request)) {
        if (end <= run.begin || run.end <= item.context_count) continue;
        ASSERT_GE(end, run.end) << "request " << item.request << ": a run is cut";
        ++(item.context_count <= run.begin ? whole_runs : rests_of_runs);
        ASSERT_LT(named, item.whole_runs.size());
        ASSERT_EQ(item.whole_runs[named++], run);
      }
      ASSERT_EQ(named, item.whole_runs.size());
    }
    budgets_passed += batch.token_count() > options_.batch_tokens_max;
  }

  // Empty where the request drawn is not over, or the text is too long to go on.
  std::vector<int32_t> earlier_turns() {
    const auto found =
        expected_.find(static_cast<RequestId>(rng_.below(static_cast<uint64_t>(next_id_))));
    if (found == expected_.end() || !found->second.over) return {};
    std::vector<int32_t> tokens = found->second.prompt;
    tokens.insert(tokens.end(), found->second.generated.begin(), found->second.generated.end());
    return tokens.size() < 16 ? tokens : std::vector<int32_t>();
  }

  void cancel() {
    if (expected_.empty()) return;
    const RequestId id = static_cast<RequestId>(rng_.below(static_cast<uint64_t>(next_id_)));
    const auto found = expected_.find(id);
    if (found == expected_.end() || found->second.over) return;
    found->second.cancelled = true;
    end(scheduler_.cancel(id));
  }

  // Some of it wrong, some of it for requests that are in flight, over, or have no token yet.
  void draft() {
    std::vector<int32_t> tokens;
    const auto drawn = static_cast<RequestId>(rng_.below(static_cast<uint64_t>(next_id_) + 1));
    for (const auto& [id, request] : expected_) {
      const bool over = request.over;  // nothing is read of what it drafts
      if (over ? id != drawn : rng_.below(3) == 0) continue;
      tokens.clear();
      if (!over) tokens = request.prompt;
      if (!over) tokens.insert(tokens.end(), request.generated.begin(), request.generated.end());
      const size_t known = tokens.size();
      int32_t right = 0;
      bool all_right = true;
      for (size_t left = rng_.below(8); left > 0; --left) {
        const bool wrong = rng_.below(5) == 0;
        tokens.push_back(wrong || over ? 7 : ToyEngine::next_token(tokens, request.sample));
        all_right = all_right && !wrong;
        right += all_right ? 1 : 0;
      }
      const auto count = static_cast<int32_t>(tokens.size() - known);
      // Of some it is said what is certain, and not always truly.
      const uint64_t claim = claims_.below(20);
      scheduler_.draft(id, std::span(tokens).subspan(known),
                       claim == 0  ? count
                       : claim < 8 ? right
                                   : 0);
    }
  }

  void step() {
    if (drafts_) draft();
    auto batch = scheduler_.next_batch();
    ASSERT_TRUE(batch || !flying_.empty() || scheduler_.idle()) << "nothing can ever run again";
    if (batch) {
      check(*batch);
      engine_.copy(*batch);
      check_states(*batch);
      engine_.run(*batch);
      const bool lost = rng_.below(20) == 0;
      if (lost) engine_.spoil_states(*batch);
      flying_.push_back({std::move(*batch), lost});
    }
    const bool full = static_cast<int32_t>(flying_.size()) >= options_.batches_in_flight_max;
    if (flying_.empty() || (!full && rng_.below(2) == 0)) return;
    const Flight landed = std::move(flying_.front());
    flying_.erase(flying_.begin());
    if (landed.lost) {
      for (const StateCopy& copy : landed.batch.state_copies) {
        ++(is_kept(copy.dst) ? kept_lost : copies_lost);
      }
      end(scheduler_.lose(landed.batch.id));
      return;
    }
    finish(landed.batch);
  }

  void check(const Batch& batch) {
    ASSERT_FALSE(batch.items.empty());
    ASSERT_LE(static_cast<int32_t>(batch.items.size()), options_.batch_requests_max);
    check_runs(batch);
    if (options_.policy == ServePolicy::kChunked) {
      ASSERT_LE(batch.token_count(), options_.batch_tokens_max + run_tokens_max);
    }
    if (options_.policy == ServePolicy::kRounds) check_phase(batch);
    int64_t sample_rows = 0;
    int64_t drafts = 0;
    for (const WorkItem& item : batch.items) {
      sample_rows += item.sample_rows();
      drafts += item.draft_count;
    }
    ASSERT_TRUE(drafts == 0 || sample_rows <= options_.sample_rows_max);
    ASSERT_TRUE(drafts == 0 || batch.token_count() <= options_.batch_tokens_max);
    std::set<RequestId> members;
    for (const WorkItem& item : batch.items) ASSERT_TRUE(members.insert(item.request).second);
    for (const auto& [other, lost] : flying_) {
      for (const WorkItem& item : other.items) ASSERT_FALSE(members.contains(item.request));
    }
  }

  // Prompts, with what is computed again, or next tokens; never both.
  void check_phase(const Batch& batch) {
    int64_t prompts = 0;
    for (const WorkItem& item : batch.items) {
      const auto prompt = std::ssize(expected_.at(item.request).prompt);
      const int64_t own = std::ssize(item.tokens) - item.draft_count - item.again_count;
      prompts += item.context_count < prompt || own > 1;
    }
    ASSERT_TRUE(prompts == 0 || prompts == std::ssize(batch.items));
  }

  // Before the batch runs and after its copies.
  void check_states(const Batch& batch) {
    std::set<int32_t> taken;
    for (const auto& [other, lost] : flying_) {
      for (const WorkItem& item : other.items) taken.insert(item.state);
    }
    if (!states_) taken.clear();
    for (const WorkItem& item : batch.items) {
      ASSERT_EQ(item.state != kNoState, states_);
      if (!states_) continue;
      ASSERT_TRUE(taken.insert(item.state).second) << "two run with state " << item.state;
      if (item.spare != kNoState) {
        ASSERT_TRUE(taken.insert(item.spare).second) << "two have spare state " << item.spare;
        ASSERT_LT(item.spare, options_.state_count);
      }
      ASSERT_TRUE(item.draft_count > 0 || item.spare == kNoState);
      without_spare += item.draft_count > 0 && item.spare == kNoState;
      ran_again += item.again_count;
      const Expected& request = expected_.at(item.request);
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), request.generated.begin(), request.generated.end());
      tokens.resize(static_cast<size_t>(item.context_count));
      ASSERT_EQ(engine_.state(item.state), tokens) << "request " << item.request;
      int32_t& computed = computed_[item.request];
      const bool border = options_.kept_state_count > 0 && item.context_count % kBlockTokens == 0;
      ASSERT_TRUE(item.context_count + item.again_count == computed || item.context_count == 0 ||
                  border);
      restarts += computed > 0 && item.context_count == 0;
      computed = item.context_count + static_cast<int32_t>(item.tokens.size()) - item.draft_count;
    }
    check_state_copies(batch);
  }

  void check_state_copies(const Batch& batch) {
    ASSERT_TRUE(states_ || batch.state_copies.empty());
    std::set<int32_t> into, from;
    const auto runs_with = [&](int32_t state) {
      return std::ranges::find(batch.items, state, &WorkItem::state);
    };
    for (const StateCopy& copy : batch.state_copies) {
      ASSERT_FALSE(into.contains(copy.src));
      ASSERT_TRUE(into.insert(copy.dst).second);
      kept_replaced += is_kept(copy.dst) && from.contains(copy.dst);
      from.insert(copy.src);
      if (is_kept(copy.dst)) {
        ++kept;
        continue;
      }
      if (is_kept(copy.src)) {
        ++begun_at_kept;
        continue;
      }
      const auto user = runs_with(copy.src);
      ++copies;
      copies_overwritten += user != batch.items.end() && user->context_count == 0;
      copies_ahead += runs_with(copy.dst) == batch.items.end();
    }
  }

  bool is_kept(int32_t state) const { return state >= options_.state_count; }

  std::vector<PrefixHash> prefixes_of(std::span<const int32_t> prompt) const {
    std::vector<PrefixHash> prefixes;
    if (options_.kept_state_count == 0) return prefixes;
    PrefixHash prefix = prefix_seed(0);
    for (; prompt.size() >= kBlockTokens; prompt = prompt.subspan(kBlockTokens)) {
      prefix = extend_prefix(prefix, prompt.first(kBlockTokens));
      prefixes.push_back(prefix);
    }
    return prefixes;
  }

  // Each holds what its name stands for.
  void check_kept_states() {
    const KeptStates& states = scheduler_.kept_states();
    std::set<int32_t> seen;
    for (const auto& [id, request] : expected_) {
      for (size_t i = 0; i < request.prefixes.size(); ++i) {
        const auto slot = states.find(request.prefixes[i]);
        if (!slot || !seen.insert(*slot).second) continue;
        const std::span<const int32_t> tokens(request.prompt.data(), (i + 1) * kBlockTokens);
        ASSERT_TRUE(std::ranges::equal(engine_.state(*slot), tokens)) << "kept state " << *slot;
      }
    }
    ASSERT_EQ(std::ssize(seen), states.count()) << "a state is kept behind no prompt";
  }

  void finish(const Batch& batch) {
    std::vector<SampledNext> sampled;
    for (const WorkItem& item : batch.items) {
      Expected& request = expected_.at(item.request);
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), request.generated.begin(), request.generated.end());
      size_t count = item.tokens.size() - static_cast<size_t>(item.draft_count);
      std::vector<int32_t> context = engine_.context(item, count);
      ASSERT_TRUE(std::equal(context.begin(), context.end(), tokens.begin()))
          << "request " << item.request << " sees other tokens than its own";
      if (!item.samples) continue;
      SampledNext next{.request = item.request};
      next.token = ToyEngine::next_token(context, request.sample);
      if (request.generated.empty()) add_forks(item.request, context, next);
      std::vector<int32_t>& generated = expected_.at(item.request).generated;
      generated.push_back(next.token);
      next.finished = stops(expected_.at(item.request));
      while (!next.finished && count < item.tokens.size() && item.tokens[count] == next.token) {
        context = engine_.context(item, ++count);
        next.token = ToyEngine::next_token(context, expected_.at(item.request).sample);
        generated.push_back(next.token);
        ++next.accepted;
        ++accepted;
        next.finished = stops(expected_.at(item.request));
      }
      computed_[item.request] += next.accepted;
      if (states_ && next.accepted < item.draft_count && !next.finished) {
        ++(item.spare == kNoState ? claims_broken : went_back);
      }
      sampled.push_back(std::move(next));
    }
    end(scheduler_.complete(batch.id, sampled));
  }

  void add_forks(RequestId parent, const std::vector<int32_t>& context, SampledNext& next) {
    for (int32_t i = 0; i < forks_[parent]; ++i) {
      if (states_ && rng_.below(4) == 0) continue;
      Expected child = expected_.at(parent);
      child.cancelled = child.over = false;
      child.sample = static_cast<uint64_t>(i + 1);
      const int32_t token = ToyEngine::next_token(context, child.sample);
      child.generated = {token};
      const bool finished = stops(child);
      next.forks.push_back({next_id_, token, finished});
      computed_[next_id_] = static_cast<int32_t>(child.prompt.size());
      runs_[next_id_] = runs_.at(parent);
      expected_[next_id_++] = child;
    }
    forks_[parent] = 0;
  }

  // Whether its answer ends with what it has.
  bool stops(Expected& request) {
    if (!states_ || rng_.below(6) != 0) return false;
    request.max_new_tokens = static_cast<int32_t>(request.generated.size());
    return true;
  }

  void end(const std::vector<RequestId>& ids) {
    for (const RequestId id : ids) expected_.at(id).over = true;
  }

  ServeSchedulerOptions options_;
  bool priorities_;
  bool drafts_;
  ServeScheduler scheduler_;
  const bool states_;
  ToyEngine engine_;
  Rng rng_;
  Rng losses_;  // of caches
  Rng claims_;
  RequestId next_id_ = 0;
  std::map<RequestId, Expected> expected_;
  std::map<RequestId, int32_t> forks_;
  std::map<RequestId, std::vector<TokenRun>> runs_;
  std::map<RequestId, int32_t> computed_;  // as far as it was run last; with states
  struct Flight {
    Batch batch;
    bool lost;  // nobody knows yet
  };
  std::vector<Flight> flying_;
};

inline RequestSpec request_of(RequestId id, int32_t prompt, int32_t new_tokens) {
  RequestSpec spec;
  spec.id = id;
  for (int32_t i = 0; i < prompt; ++i) spec.prompt.push_back(static_cast<int32_t>(id * 100 + i));
  spec.max_new_tokens = new_tokens;
  return spec;
}

inline std::vector<SampledNext> sample_all(const Batch& batch) {
  std::vector<SampledNext> sampled;
  for (const WorkItem& item : batch.items) {
    if (item.samples) sampled.push_back({.request = item.request, .token = 7});
  }
  return sampled;
}

}  // namespace jige::plan
