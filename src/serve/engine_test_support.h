// What the engine's tests share: sinks that keep what they are told, requests drawn at random, and
// what a request gives when it runs alone.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "serve/engine.h"
#include "serve/generator.h"
#include "serve/serve_test_support.h"

namespace jige::serve::testing {

// What one choice gave; equal only when every bit is.
struct ChoiceOutcome {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason finish = FinishReason::kLength;
  bool operator==(const ChoiceOutcome&) const = default;
};
using Outcome = std::vector<ChoiceOutcome>;

inline void PrintTo(const ChoiceOutcome& choice, std::ostream* out) {
  *out << choice.tokens.size() << " tokens, \"" << choice.text << "\", "
       << finish_reason_name(choice.finish);
}

// Keeps everything and checks the order of events. Threads: the engine's; wait() from another, and
// what is kept only behind it.
class KeepingSink final : public RequestSink {
 public:
  explicit KeepingSink(int32_t choice_count = 1)
      : outcome(static_cast<size_t>(choice_count)), ended(static_cast<size_t>(choice_count)) {}

  void on_prompt(std::span<const ops::TokenScore> told) override {
    EXPECT_FALSE(scores) << "told twice";
    EXPECT_EQ(piece_count, 0) << "behind a piece";
    scores.emplace(told.begin(), told.end());
  }
  void on_piece(int32_t choice, const AnswerPiece& piece) override {
    EXPECT_FALSE(over_) << "a piece behind the end";
    const auto i = static_cast<size_t>(choice);
    EXPECT_FALSE(ended[i]) << "a piece behind its choice's end";
    outcome[i].text += piece.text;
    if (piece.token >= 0) {
      outcome[i].tokens.push_back(piece.token);
      outcome[i].logprobs.push_back(piece.logprob);
      top_counts.push_back(piece.top.size());
    }
    ++piece_count;
    if (when_piece) when_piece(piece_count);
  }
  void on_choice(const ChoiceEnd& end) override {
    EXPECT_FALSE(over_);
    const auto i = static_cast<size_t>(end.choice);
    EXPECT_FALSE(ended[i]) << "choice " << end.choice << " ended twice";
    ended[i] = true;
    outcome[i].finish = end.finish;
    EXPECT_EQ(end.generated_tokens, std::ssize(outcome[i].tokens));
    ends.push_back(end);
  }
  void on_done(const RequestReport& done) override {
    for (const bool one : ended) EXPECT_TRUE(one) << "done before every choice ended";
    report = done;
    finish();
  }
  void on_failed(const Error& failure) override {
    error = failure;
    finish();
  }

  // Waits for on_done or on_failed; false when they do not come.
  bool wait(double seconds = 20) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; });
  }

  Outcome outcome;
  std::optional<std::vector<ops::TokenScore>> scores;  // of the prompt
  std::vector<bool> ended;
  std::vector<ChoiceEnd> ends;
  std::vector<size_t> top_counts;
  std::optional<RequestReport> report;
  std::optional<Error> error;
  int piece_count = 0;
  std::function<void(int piece_count)> when_piece;
  std::function<void()> when_over;

 private:
  void finish() {
    if (when_over) when_over();
    {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(over_) << "two ends";
      over_ = true;
    }
    came_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable came_;
  bool over_ = false;
};

// Lets an engine make as many iterations as a test says and holds its thread before the next one,
// so that what a test does in between falls there however slow the machine is. Its methods from any
// thread; it must outlive the engine.
class Gate {
 public:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  explicit Gate(int64_t allowed = 0) : left_(allowed) {}

  // For EngineFaults::before_forward.
  std::function<Status(int64_t)> hook() {
    return [this](int64_t) {
      pass();
      return Status();
    };
  }
  // `count` iterations from now on; none holds the next one.
  void allow(int64_t count) {
    const std::lock_guard lock(mutex_);
    left_ = count;
    changed_.notify_all();
  }
  void open() { allow(kAll); }
  // Until the engine stands before an iteration that is not allowed.
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [this] {
      return stands_ && left_ == 0;
    })) << "no iteration began";
  }

 private:
  void pass() {
    std::unique_lock lock(mutex_);
    stands_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return left_ > 0; });
    stands_ = false;
    --left_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t left_;
  bool stands_ = false;
};

// A request with most of what can be asked for, drawn from `rng`.
inline EngineRequest random_request(Rng& rng, int64_t prompt_max = 50) {
  EngineRequest request;
  const auto shared = static_cast<int32_t>(rng.below(3) * 17);  // beginnings in common
  for (int32_t i = 0; i < shared; ++i) request.prompt.push_back(3 + (i * 7) % 90);
  const uint64_t own = 1 + rng.below(static_cast<uint64_t>(prompt_max) - 33);
  for (uint64_t i = 0; i < own; ++i) {
    request.prompt.push_back(static_cast<int32_t>(3 + rng.below(90)));
  }
  request.seed = rng.next_u64();
  request.tokens_max = static_cast<int64_t>(1 + rng.below(24));
  if (rng.below(3) > 0) request.sampling.temperature = 0.8;
  if (rng.below(3) == 0) request.sampling.top_p = 0.9;
  if (rng.below(3) == 0) request.sampling.frequency_penalty = 0.5;
  if (rng.below(4) == 0) request.sampling.logit_bias = {{7, 3.0f}, {9, -50.0f}};
  if (rng.below(3) == 0) request.stop_strings = {"a", "Z9"};
  request.priority = static_cast<int32_t>(rng.below(3));
  request.tenant = rng.below(3);
  request.top_count = static_cast<int>(rng.below(3));
  request.choice_count = static_cast<int32_t>(rng.below(4) == 0 ? 3 : 1);
  return request;
}

// What a request gives when it runs alone, one choice after the other.
inline Outcome alone(Loaded& loaded, const EngineRequest& request) {
  Generator generator(*loaded.model, loaded.tokenizer, request.adapter);
  Outcome outcome;
  for (int32_t choice = 0; choice < request.choice_count; ++choice) {
    generator.reset();
    ChoiceOutcome one;
    GenerateOptions options{.sampling = request.sampling,
                            .seed = request.seed,
                            .choice = choice,
                            .tokens_max = request.tokens_max,
                            .stop_ids = request.stop_ids,
                            .stop_strings = request.stop_strings,
                            .constraint = request.constraint,
                            .given = request.given};
    const auto& eos = loaded.model->config().eos_ids;
    if (!request.ignore_eos) {
      options.stop_ids.insert(options.stop_ids.end(), eos.begin(), eos.end());
    }
    const auto answer =
        value_of(generator.generate(request.prompt, options, [&](const GeneratedPiece& piece) {
          if (piece.token >= 0) one.logprobs.push_back(piece.logprob);
        }));
    one.tokens = answer.tokens;
    one.text = answer.text;
    one.finish = answer.finish;
    outcome.push_back(std::move(one));
  }
  return outcome;
}

inline std::shared_ptr<KeepingSink> sink_for(const EngineRequest& request) {
  return std::make_shared<KeepingSink>(request.choice_count);
}

// After everything is over: no block is in use and every request is accounted for.
inline void expect_clean(const Engine& engine) {
  const EngineStatus status = engine.status(true);
  EXPECT_EQ(status.kv_blocks_live, 0) << "blocks leaked";
  EXPECT_EQ(status.running_sequences, 0);
  EXPECT_EQ(status.preempted_sequences, 0);
  EXPECT_EQ(status.waiting_requests, 0);
  EXPECT_EQ(status.waiting_prompt_tokens, 0);
  EXPECT_TRUE(status.requests.empty());
  EXPECT_EQ(status.seconds_since_iteration, 0);
  int64_t over = status.counters.requests_refused + status.counters.requests_failed;
  for (const int64_t finished : status.counters.requests_finished) over += finished;
  EXPECT_EQ(status.counters.requests_received, over);
}

// Runs all requests at once, drawing on two threads, and compares each with what is
// expected of it; gives the engine's last status.
inline EngineStatus expect_outcomes(Loaded& loaded, std::span<const EngineRequest> requests,
                                    std::span<const Outcome> expected, EngineOptions options) {
  Gate gate;
  ThreadTeam team(2);
  options.sampling_team = &team;
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const EngineRequest& request : requests) {
    sinks.push_back(sink_for(request));
    value_of(engine->submit(request, sinks.back()));
    // The first begins alone, the others come while it is held: the batches are always the same.
    if (sinks.size() == 1) gate.wait_until_held();
  }
  gate.open();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_TRUE(sinks[i]->wait()) << "request " << i << " never ended";
    EXPECT_FALSE(sinks[i]->error);
    EXPECT_EQ(sinks[i]->outcome, expected[i]) << "request " << i;
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  return engine->status();
}

// The same under every policy and with each of so many tokens a batch. Expects that sequences gave
// their blocks up meanwhile. Models guess ahead, and without states know beginnings.
inline void expect_outcomes_anyhow(Loaded& loaded, std::span<const EngineRequest> requests,
                                   std::span<const Outcome> expected,
                                   std::span<const int32_t> batch_tokens) {
  const bool has_states = loaded.model->sizes().state_count > 0;
  int64_t preemptions = 0, hits = 0;
  for (const plan::ServePolicy policy : plan::kServePolicies) {
    for (const int32_t tokens : batch_tokens) {
      const EngineStatus status = expect_outcomes(loaded, requests, expected,
                                                  {.policy = policy,
                                                   .admission = plan::Admission::kOptimistic,
                                                   .batch_tokens_max = tokens,
                                                   .drafts = {.tokens_max = 3}});
      preemptions += status.counters.preemptions;
      hits += status.counters.prefix_hit_tokens;
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(hits > 0, !has_states);
}

}  // namespace jige::serve::testing
