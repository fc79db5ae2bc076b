// The engine's life: queue, cancellation, draining, status. Its bits: engine_bits_test.cc.
#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using plan::ServePolicy;
using testing::alone;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

const model::InferenceOptions kModel = {.kv_block_count = 40, .batch_tokens_max = 64};

EngineRequest request_of(size_t prompt_tokens, int64_t tokens_max) {
  EngineRequest request;
  for (size_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(3 + (i * 11 + prompt_tokens) % 90));
  }
  request.tokens_max = tokens_max;
  request.ignore_eos = true;
  return request;
}

std::unique_ptr<Engine> engine_of(Loaded& loaded, EngineOptions options = {}) {
  return value_of(Engine::create(*loaded.model, loaded.tokenizer, std::move(options)));
}

Error error_of(const Status& status) {
  EXPECT_FALSE(status);
  return status ? Error{Code::kInternal, ""} : status.error();
}
Error error_of(const Result<RequestId>& id) {
  EXPECT_FALSE(id);
  return id ? Error{Code::kInternal, ""} : id.error();
}

TEST(Engine, ReportsTokensTimesAndCounts) {
  Loaded loaded("llama2", kModel);
  const auto engine = engine_of(loaded, {.batch_tokens_max = 10});
  EngineRequest request = request_of(32, 6);
  request.top_count = 2;
  for (int turn = 0; turn < 2; ++turn) {
    const auto sink = sink_for(request);
    EXPECT_GT(value_of(engine->submit(request, sink)), 0);
    ASSERT_TRUE(sink->wait());
    ASSERT_TRUE(sink->report);
    const RequestReport& report = *sink->report;
    EXPECT_EQ(report.prompt_tokens, 32);
    EXPECT_EQ(report.cached_tokens, turn == 0 ? 0 : 16);  // the last token is run in any case
    EXPECT_EQ(report.generated_tokens, 6);
    EXPECT_EQ(report.iterations, (turn == 0 ? 4 : 2) + 5);
    EXPECT_EQ(report.preemptions, 0);
    EXPECT_GE(report.queue_seconds, 0);
    EXPECT_GT(report.prefill_seconds, 0);
    EXPECT_GT(report.decode_seconds, 0);
    EXPECT_EQ(sink->top_counts, std::vector<size_t>(6, 2));
  }
  ASSERT_TRUE(engine->drain(20));
  const EngineStatus status = engine->status();
  EXPECT_EQ(status.counters.requests_received, 2);
  EXPECT_EQ(status.counters.requests_finished[static_cast<size_t>(FinishReason::kLength)], 2);
  EXPECT_EQ(status.counters.prompt_tokens, 64);
  EXPECT_EQ(status.counters.prefix_query_tokens, 64);
  EXPECT_EQ(status.counters.prefix_hit_tokens, 16);
  EXPECT_EQ(status.counters.generated_tokens, 12);
  EXPECT_EQ(status.counters.computed_tokens, 32 + 16 + 2 * 5);
  EXPECT_EQ(status.counters.iterations, 4 + 2 + 2 * 5);
  EXPECT_EQ(status.total.tokens, status.counters.computed_tokens);
  EXPECT_EQ(status.last_iteration_tokens, 1);
  EXPECT_GT(status.recent.bytes_per_s(), 0);
  EXPECT_GT(status.recent.flops_per_s(), 0);
  EXPECT_GT(status.service_requests_per_s, 0);
  EXPECT_EQ(status.kv_blocks, 40);
  const EngineHistograms& histograms = engine->histograms();
  EXPECT_EQ(histograms.first_token_seconds.snapshot().count, 2u);
  EXPECT_EQ(histograms.inter_token_seconds.snapshot().count, 10u);
  EXPECT_EQ(histograms.total_seconds.snapshot().count, 2u);
  EXPECT_EQ(histograms.queue_seconds.snapshot().count, 2u);
  EXPECT_EQ(histograms.decode_seconds.snapshot().count, 2u);
  EXPECT_EQ(histograms.prompt_tokens.snapshot().sum, 64);
  EXPECT_EQ(histograms.generated_tokens.snapshot().sum, 12);
  EXPECT_EQ(histograms.tokens_max.snapshot().sum, 12);
  EXPECT_EQ(histograms.choice_count.snapshot().sum, 2);
  EXPECT_EQ(histograms.iteration_tokens.snapshot().sum, 58);
  expect_clean(*engine);
}

// One choice, and two.
TEST(Engine, GreedyAnswersAreTheSameWhereNoLogitsAreWanted) {
  Loaded loaded("llama2", kModel);
  const auto engine = engine_of(loaded, {.batch_tokens_max = 10});
  EngineRequest request = request_of(20, 6);
  request.sampling.temperature = 0;
  std::vector<Outcome> outcomes;
  for (const bool logprobs : {true, false, false}) {
    request.logprobs = logprobs;
    request.choice_count = std::ssize(outcomes) == 2 ? 2 : 1;
    const auto sink = sink_for(request);
    EXPECT_GT(value_of(engine->submit(request, sink)), 0);
    ASSERT_TRUE(sink->wait());
    outcomes.push_back(sink->outcome);
  }
  EXPECT_NE(outcomes[0][0].logprobs[0], 0);
  EXPECT_EQ(outcomes[1][0].logprobs[0], 0);
  for (const Outcome& outcome : {outcomes[1], outcomes[2]}) {
    for (const testing::ChoiceOutcome& choice : outcome)
      EXPECT_EQ(choice.tokens, outcomes[0][0].tokens);
  }
}

TEST(Engine, EndOfTextIdsOfTheModelStopUnlessIgnored) {
  Loaded loaded("llama2", kModel);  // config.json: end-of-text is 2
  const auto engine = engine_of(loaded);
  EngineRequest request = request_of(5, 8);
  request.sampling.logit_bias = {{2, 100.0f}};
  for (const bool ignore : {false, true}) {
    request.ignore_eos = ignore;
    const auto sink = sink_for(request);
    value_of(engine->submit(request, sink));
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->outcome[0].tokens.size(), ignore ? 8u : 0u);
    EXPECT_EQ(sink->ends[0].stop_id, ignore ? -1 : 2);
  }
  request.ignore_eos = false;
  request.tokens_min = 4;  // forbids it until then
  const auto sink = sink_for(request);
  value_of(engine->submit(request, sink));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->outcome[0].tokens.size(), 4u);
}

TEST(Engine, RefusesWhatCouldNeverRun) {
  Loaded loaded("llama2", {.context_max = 64, .kv_block_count = 8});
  const auto engine = engine_of(loaded, {.choices_max = 4});
  EXPECT_EQ(engine->context_max(), 64);
  using enum RequestField;
  const auto refused = [&](const EngineRequest& request, RequestField field,
                           std::string_view word) {
    const auto sink = sink_for(request);
    const auto id = engine->submit(request, sink);
    ASSERT_FALSE(id) << word;
    const Refusal& error = id.error();
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_EQ(error.field, field) << error.message;
    EXPECT_NE(error.message.find(word), std::string::npos) << error.message;
    EXPECT_FALSE(sink->report || sink->error);
  };
  refused(request_of(0, 5), kPrompt, "empty");
  refused(request_of(64, 5), kPrompt,
          "64 tokens and the context holds 64; shorten the prompt, or load the model with a longer "
          "--context, 128 at most");
  refused(request_of(5, 0), kTokensMax, "are 0");
  const auto with = [](auto change) {
    EngineRequest request = request_of(5, 5);
    change(request);
    return request;
  };
  refused(with([](auto& r) { r.prompt[2] = 96; }), kPrompt, "prompt is 96");
  refused(with([](auto& r) { r.prompt[2] = -1; }), kPrompt, "prompt is -1");
  refused(with([](auto& r) { r.choice_count = 5; }), kChoiceCount, "choices is 5");
  refused(with([](auto& r) { r.choice_count = 0; }), kChoiceCount, "choices is 0");
  refused(with([](auto& r) { r.top_count = -1; }), kTopCount, "alternatives is -1");
  refused(with([](auto& r) { r.tokens_min = 6; }), kTokensMin, "is 6");
  refused(with([](auto& r) { r.sampling.top_p = 0; }), kSampling, "top_p");
  refused(with([](auto& r) {
            r.sampling.logit_bias = {{96, 1.0f}};
          }),
          kLogitBias, "logit_bias is 96");
  refused(with([](auto& r) { r.choice_count = 3, r.tokens_max = 60; }), kChoiceCount,
          "12 key/value blocks");
  EXPECT_EQ(engine->status().counters.requests_refused, 12);
  // The answer is cut to what the context leaves.
  const auto sink = std::make_shared<KeepingSink>();
  value_of(engine->submit(request_of(60, 1000), sink));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->outcome[0].tokens.size(), 4u);
  EXPECT_EQ(sink->outcome[0].finish, FinishReason::kContextFull);
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(Engine, RefusesOptionsOutOfRange) {
  Loaded loaded("llama2", kModel);
  for (const EngineOptions& bad :
       {EngineOptions{.batch_requests_max = 0}, EngineOptions{.batch_tokens_max = -1},
        EngineOptions{.batches_in_flight = 0}, EngineOptions{.preemptions_max = -1},
        EngineOptions{.choices_max = 0}, EngineOptions{.choices_max = 1000},
        EngineOptions{.waiting_requests_max = 0}, EngineOptions{.waiting_prompt_tokens_max = 0},
        EngineOptions{.stall_seconds_max = 0}}) {
    const auto engine = Engine::create(*loaded.model, loaded.tokenizer, bad);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, Code::kInvalidArgument);
  }
  const auto nested = Engine::create(*loaded.model, loaded.tokenizer, {.batches_in_flight = 2});
  ASSERT_FALSE(nested);
  EXPECT_EQ(nested.error().code, Code::kUnsupported);
  EXPECT_NE(nested.error().message.find("1 forward under way"), std::string::npos);
  const auto engine = Engine::create(*loaded.model, loaded.tokenizer,
                                     {.event_log_path = "/no/such/folder/events.jsonl"});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kNotFound);
}

TEST(Engine, BoundsItsQueue) {
  Loaded loaded("llama2", kModel);
  Gate gate;
  EngineOptions options{.waiting_requests_max = 2, .waiting_prompt_tokens_max = 50};
  options.faults.before_forward = gate.hook();
  const auto engine = engine_of(loaded, options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  const auto submit = [&](size_t prompt_tokens) {
    sinks.push_back(std::make_shared<KeepingSink>());
    return engine->submit(request_of(prompt_tokens, 3), sinks.back());
  };
  value_of(submit(5));
  gate.wait_until_held();  // it runs, so it waits no more
  EXPECT_TRUE(engine->admission_check(1 << 20));
  value_of(submit(30));
  EXPECT_EQ(error_of(submit(21)).code, Code::kExhausted);  // too many tokens
  EXPECT_EQ(error_of(engine->admission_check(21 * 8)).code, Code::kExhausted);
  EXPECT_TRUE(engine->admission_check(20 * 8));
  value_of(submit(20));
  const Error full = error_of(submit(1));
  EXPECT_EQ(full.code, Code::kExhausted);
  EXPECT_NE(full.message.find("2 requests wait"), std::string::npos) << full.message;
  EXPECT_EQ(error_of(engine->admission_check(1)).code, Code::kExhausted);
  EXPECT_GE(engine->retry_after_seconds(), 1);
  EXPECT_LE(engine->retry_after_seconds(), 120);
  const EngineStatus status = engine->status();
  EXPECT_EQ(status.waiting_requests, 2);
  EXPECT_EQ(status.waiting_prompt_tokens, 50);
  EXPECT_EQ(status.running_sequences, 1);  // in its first iteration already
  EXPECT_EQ(status.counters.requests_refused, 4);
  gate.open();
  EXPECT_TRUE(engine->drain(20));
  for (const size_t taken : {0, 1, 3}) EXPECT_EQ(sinks[taken]->outcome[0].tokens.size(), 3u);
  expect_clean(*engine);
}

// Prompts of 60 tokens run 7 at a time. Cancelled while its third piece runs, a request takes no
// part in the fourth iteration.
TEST(Engine, CancellingWorksWithinOneIterationInPrefill) {
  Loaded loaded("llama2", kModel);
  Engine* running = nullptr;
  RequestId id = 0;
  EngineOptions options{.batch_tokens_max = 7};
  int64_t live_before = 0;
  options.faults.before_forward = [&](int64_t iteration) -> Status {
    if (iteration == 3) {
      live_before = running->status().kv_blocks_live;
      running->cancel(id);
      running->cancel(id);  // again, and one nobody knows
      running->cancel(9999);
    }
    return {};
  };
  Gate gate;
  const auto cancel_hook = options.faults.before_forward;
  options.faults.before_forward = [hook = gate.hook(), cancel_hook](int64_t iteration) -> Status {
    JIGE_DO(hook(iteration));
    return cancel_hook(iteration);
  };
  const auto engine = engine_of(loaded, options);
  running = engine.get();
  const auto sink = std::make_shared<KeepingSink>();
  id = value_of(engine->submit(request_of(60, 5), sink));
  gate.open();
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->outcome[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(sink->report->iterations, 3);
  EXPECT_EQ(sink->report->generated_tokens, 0);
  EXPECT_GT(live_before, 0);
  EXPECT_TRUE(engine->drain(20));
  EXPECT_EQ(engine->status().counters.iterations, 3);
  EXPECT_EQ(
      engine->status().counters.requests_finished[static_cast<size_t>(FinishReason::kCancelled)],
      1);
  expect_clean(*engine);
}

TEST(Engine, PriorityGoesFirst) {
  Loaded loaded("llama2", kModel);
  Gate gate;
  EngineOptions options{.batch_requests_max = 1};
  options.faults.before_forward = gate.hook();
  const auto engine = engine_of(loaded, options);
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const int32_t priority : {0, 1, 5}) {
    EngineRequest request = request_of(9, 4);
    request.priority = priority;
    sinks.push_back(std::make_shared<KeepingSink>());
    sinks.back()->when_over = [&, priority] {
      const std::lock_guard lock(mutex);
      order.push_back(priority);
    };
    value_of(engine->submit(request, sinks.back()));
    if (priority == 0) gate.wait_until_held();
  }
  gate.open();
  EXPECT_TRUE(engine->drain(20));
  EXPECT_EQ(order, (std::vector<int>{0, 5, 1}));  // a decode is not put off
}

// Request-level batching answers nobody before the longest of the batch is done.
TEST(Engine, TheStaticPolicyAnswersABatchAtOnce) {
  Loaded loaded("llama2", kModel);
  for (const ServePolicy policy : {ServePolicy::kStatic, ServePolicy::kOrca}) {
    Gate gate;
    EngineOptions options{.policy = policy};
    options.faults.before_forward = gate.hook();
    const auto engine = engine_of(loaded, options);
    // Holds the first iteration, so that the other two begin together.
    const auto first = std::make_shared<KeepingSink>();
    value_of(engine->submit(request_of(4, 1), first));
    gate.wait_until_held();
    const auto quick = std::make_shared<KeepingSink>();
    const auto slow = std::make_shared<KeepingSink>();
    int slow_pieces = 0;
    quick->when_over = [&] { slow_pieces = slow->piece_count; };
    value_of(engine->submit(request_of(5, 2), quick));
    value_of(engine->submit(request_of(6, 12), slow));
    gate.open();
    EXPECT_TRUE(engine->drain(20));
    EXPECT_EQ(slow_pieces, policy == ServePolicy::kStatic ? 12 : 2);
    EXPECT_EQ(quick->outcome[0].tokens.size(), 2u);
    expect_clean(*engine);
  }
}

TEST(Engine, DrainFinishesWhatIsThereAndTakesNothingNew) {
  Loaded loaded("llama2", kModel);
  Gate gate;
  EngineOptions options;
  options.faults.before_forward = gate.hook();
  const auto engine = engine_of(loaded, options);
  const auto sink = std::make_shared<KeepingSink>();
  value_of(engine->submit(request_of(9, 7), sink));
  gate.wait_until_held();
  EXPECT_TRUE(engine->status().accepting);
  engine->begin_drain();
  EXPECT_FALSE(engine->status().accepting);
  EXPECT_FALSE(engine->drain(0.001));
  EXPECT_EQ(error_of(engine->submit(request_of(3, 1), std::make_shared<KeepingSink>())).code,
            Code::kUnavailable);
  EXPECT_EQ(error_of(engine->admission_check(10)).code, Code::kUnavailable);
  gate.open();
  EXPECT_TRUE(engine->drain(20));
  EXPECT_EQ(sink->outcome[0].tokens.size(), 7u);
  expect_clean(*engine);
}

TEST(Engine, StopEndsEverythingAsCancelled) {
  Loaded loaded("llama2", kModel);
  Gate gate(1);
  EngineOptions options{.batch_requests_max = 1};
  options.faults.before_forward = gate.hook();
  const auto engine = engine_of(loaded, options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    EngineRequest request = request_of(9, 60);
    request.choice_count = 2;
    sinks.push_back(sink_for(request));
    value_of(engine->submit(request, sinks.back()));
  }
  gate.wait_until_held();
  std::thread stopper([&] { engine->stop(); });
  while (engine->status().accepting) std::this_thread::yield();
  gate.open();
  stopper.join();
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->wait(0));
    for (const auto& choice : sink->outcome) EXPECT_EQ(choice.finish, FinishReason::kCancelled);
  }
  EXPECT_EQ(error_of(engine->submit(request_of(3, 1), std::make_shared<KeepingSink>())).code,
            Code::kUnavailable);
  engine->stop();
  expect_clean(*engine);
}

TEST(Engine, SinksMayStopAndSubmit) {
  Loaded loaded("llama2", kModel);
  const auto engine = engine_of(loaded);
  const auto second = std::make_shared<KeepingSink>();
  const auto first = std::make_shared<KeepingSink>();
  first->when_piece = [&](int count) {
    if (count == 2) value_of(engine->submit(request_of(5, 100), second));
  };
  second->when_piece = [&](int count) {
    if (count == 3) engine->stop();
  };
  value_of(engine->submit(request_of(5, 4), first));
  ASSERT_TRUE(first->wait());
  ASSERT_TRUE(second->wait());
  EXPECT_EQ(first->outcome[0].tokens.size(), 4u);
  EXPECT_EQ(second->outcome[0].finish, FinishReason::kCancelled);
  engine->stop();
  expect_clean(*engine);
}

TEST(Engine, ShowsLiveRequestsAndNoticesAStall) {
  Loaded loaded("llama2", kModel);
  Gate gate(3);
  EngineOptions options{.batch_requests_max = 1, .stall_seconds_max = 0.02};
  options.faults.before_forward = gate.hook();
  const auto engine = engine_of(loaded, options);
  EXPECT_FALSE(engine->status().stalled);  // nothing to do
  const auto first = std::make_shared<KeepingSink>();
  EngineRequest request = request_of(10, 20);
  request.tenant = 7;
  request.priority = 3;
  const RequestId id = value_of(engine->submit(request, first));
  gate.wait_until_held();
  const auto second = std::make_shared<KeepingSink>();
  value_of(engine->submit(request_of(4, 2), second));
  EngineStatus status = engine->status(true);
  ASSERT_EQ(status.requests.size(), 2u);
  const RequestRow& row = status.requests[0];
  EXPECT_EQ(row.id, id);
  EXPECT_EQ(request_state_name(row.state), "decode");
  EXPECT_EQ(row.prompt_tokens, 10);
  EXPECT_EQ(row.computed_tokens, 12);
  EXPECT_EQ(row.generated_tokens, 3);
  EXPECT_EQ(row.tokens_max, 20);
  EXPECT_EQ(row.tenant, 7u);
  EXPECT_EQ(row.priority, 3);
  EXPECT_GT(row.age_seconds, 0);
  EXPECT_EQ(request_state_name(status.requests[1].state), "waiting");
  EXPECT_EQ(status.running_sequences, 1);
  EXPECT_EQ(status.kv_blocks_live, 1);  // promised are two, held is one
  EXPECT_TRUE(engine->status().requests.empty());
  while (!engine->status().stalled) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_GT(engine->status().seconds_since_iteration, 0.02);
  gate.open();
  EXPECT_TRUE(engine->drain(20));
  EXPECT_FALSE(engine->status().stalled);
  expect_clean(*engine);
}

// Threads that submit, cancel and ask, with random pauses. What is not cancelled has its own bits.
TEST(Engine, ServesManyThreads) {
  Loaded loaded("llama2", {.kv_block_count = 24, .batch_tokens_max = 32});
  Rng draw(derive_key(1, "threads"));
  std::vector<EngineRequest> kinds;
  std::vector<Outcome> expected;
  for (int i = 0; i < 6; ++i) {
    kinds.push_back(random_request(draw));
    expected.push_back(alone(loaded, kinds.back()));
  }
  const auto engine =
      engine_of(loaded, {.admission = plan::Admission::kOptimistic, .batch_tokens_max = 16});
  constexpr int kThreads = 4;
  constexpr int kEach = 20;
  std::atomic<bool> done = false;
  std::atomic<int> compared = 0;
  std::thread watcher([&] {
    while (!done) {
      const EngineStatus status = engine->status(true);
      EXPECT_LE(status.kv_blocks_live, status.kv_blocks);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(derive_key(2, "thread", t));
      for (int i = 0; i < kEach; ++i) {
        const size_t kind = rng.below(kinds.size());
        const auto sink = sink_for(kinds[kind]);
        const RequestId id = value_of(engine->submit(kinds[kind], sink));
        const bool cancels = rng.below(3) == 0;
        std::this_thread::sleep_for(std::chrono::microseconds(rng.below(400)));
        if (cancels) engine->cancel(id);
        if (rng.below(2) == 0 || i + 1 == kEach) {
          ASSERT_TRUE(sink->wait());
          if (cancels) continue;
          EXPECT_EQ(sink->outcome, expected[kind]);
          ++compared;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine->drain(20));
  done = true;
  watcher.join();
  EXPECT_GT(compared, 10);
  EXPECT_EQ(engine->status().counters.requests_received, kThreads * kEach);
  expect_clean(*engine);
}

}  // namespace
}  // namespace jige::serve
