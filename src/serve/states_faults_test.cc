// What goes wrong beside requests with states: batches are lost, clients leave, others take their
// blocks and slots, adapters come and go. Whoever stays gets the bits of being alone, and nothing
// of what was lost is found again.
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "serve/adapter_folders.h"
#include "serve/draft_test_support.h"
#include "serve/event_replay.h"

namespace jige::serve {
namespace {

using testing::AdapterFolders;
using testing::alone;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::repeating_request;
using testing::sink_for;
using testing::TempFile;
using testing::value_of;

std::vector<EngineRequest> requests_with_states(uint64_t seed, int count, int32_t choices_max) {
  Rng rng(derive_key(seed, "states and faults"));
  Rng repeats(derive_key(seed, "states, faults and repeats"));
  std::vector<EngineRequest> requests;
  for (int i = 0; i < count; ++i) {
    EngineRequest& request = requests.emplace_back(random_request(rng));
    request.choice_count = std::min(request.choice_count, choices_max);
    if (i % 4 == 1) {  // of which more is guessed right
      request = repeating_request(repeats);
      request.choice_count = 1;
    }
    if (i % 2 == 1) continue;
    request.tokens_max = 24;
    request.ignore_eos = true;  // so that blocks run short
    request.stop_strings.clear();
  }
  return requests;
}

struct FaultyCase {
  const char* fixture;
  int32_t states;  // of requests
  int32_t kept;
  plan::Admission admission;
  int threads = 1;
};

class StatesFaults : public ::testing::TestWithParam<FaultyCase> {
 protected:
  StatesFaults()
      : loaded_(GetParam().fixture,
                {.kv_block_count = 12,
                 .state_count = GetParam().states + GetParam().kept,
                 .batch_tokens_max = 64},
                GetParam().threads),
        requests_(requests_with_states(1, 12, GetParam().states)) {
    for (const EngineRequest& request : requests_) expected_.push_back(alone(loaded_, request));
    EngineOptions options{.admission = GetParam().admission,
                          .batch_requests_max = 4,
                          .batch_tokens_max = 20,
                          .kept_state_count = GetParam().kept,
                          .drafts = {.tokens_max = 3, .adaptive = false},
                          .event_log_path = log_.path()};
    options.faults.before_forward = [hook = gate_.hook()](int64_t iteration) -> Status {
      JIGE_DO(hook(iteration));
      static const std::set<int64_t> kLost = {2, 5, 9, 15, 16, 40, 57};
      if (!kLost.contains(iteration)) return {};
      return fail(Code::kUnavailable, "injected");
    };
    engine_ = value_of(Engine::create(*loaded_.model, loaded_.tokenizer, options));
  }

  // Runs those requests at once; of those in lost batches, the numbers.
  std::vector<size_t> run(const std::vector<size_t>& numbers, bool some_leave) {
    gate_.allow(0);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    std::vector<RequestId> ids(numbers.size());
    const auto leaves = [&](size_t i) { return some_leave && i % 4 == 1; };
    for (size_t i = 0; i < numbers.size(); ++i) {
      const EngineRequest& request = requests_[numbers[i]];
      sinks.push_back(sink_for(request));
      if (leaves(i)) {
        sinks[i]->when_piece = [this, &ids, i](int count) {
          if (count == 1 + static_cast<int>(i) / 4) engine_->cancel(ids[i]);
        };
      }
      ids[i] = value_of(engine_->submit(request, sinks[i]));
      if (i == 0) gate_.wait_until_held();
    }
    gate_.open();
    std::vector<size_t> lost;
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_TRUE(sinks[i]->wait()) << "request " << numbers[i] << " never ended";
      if (sinks[i]->error) {
        EXPECT_EQ(sinks[i]->error->code, Code::kUnavailable);
        lost.push_back(numbers[i]);
      } else if (!leaves(i)) {
        EXPECT_EQ(sinks[i]->outcome, expected_[numbers[i]]) << "request " << numbers[i];
      }
    }
    return lost;
  }

  TempFile log_;
  Gate gate_;
  Loaded loaded_;
  const std::vector<EngineRequest> requests_;
  std::vector<Outcome> expected_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(StatesFaults, WhoIsNotLostGetsTheBitsOfBeingAlone) {
  std::vector<size_t> all;
  for (size_t i = 0; i < requests_.size(); ++i) all.push_back(i);
  std::vector<size_t> lost = run(all, /*some_leave=*/true);
  EXPECT_GE(lost.size(), 3u);
  for (int round = 0; !lost.empty() && round < 8; ++round) lost = run(lost, false);
  EXPECT_TRUE(lost.empty());
  const int64_t before = engine_->status().counters.prefix_hit_tokens;
  EXPECT_TRUE(run(all, false).empty());  // from what is kept
  EXPECT_TRUE(engine_->drain(20));
  const EngineCounters counters = engine_->status().counters;
  EXPECT_GT(counters.prefix_hit_tokens, before);
  EXPECT_EQ(counters.iterations_lost, 7);
  EXPECT_EQ(counters.drafted_tokens > 0, GetParam().states > 1);
  if (GetParam().admission == plan::Admission::kOptimistic && GetParam().states > 1) {
    EXPECT_GT(counters.preemptions, 0);
  }
  expect_clean(*engine_);
  const ReplayCounts replayed = value_of(replay_event_log(log_.path()));
  EXPECT_EQ(replayed.batches, counters.iterations);
  EXPECT_EQ(replayed.preemptions, counters.preemptions);
}

INSTANTIATE_TEST_SUITE_P(
    Models, StatesFaults,
    ::testing::Values(FaultyCase{"qwen3_5", 1, 1, plan::Admission::kReserve},
                      FaultyCase{"lfm2", 1, 1, plan::Admission::kOptimistic, 2},
                      FaultyCase{"qwen3_5", 5, 3, plan::Admission::kOptimistic},
                      FaultyCase{"qwen3_next", 5, 3, plan::Admission::kReserve, 2},
                      FaultyCase{"granite_hybrid", 5, 3, plan::Admission::kReserve},
                      FaultyCase{"nemotron_h", 1, 1, plan::Admission::kReserve},
                      FaultyCase{"falcon_h1", 5, 3, plan::Admission::kOptimistic, 2},
                      FaultyCase{"olmo_hybrid", 5, 3, plan::Admission::kReserve},
                      FaultyCase{"falcon_mamba", 5, 3, plan::Admission::kOptimistic},
                      FaultyCase{"jamba", 5, 3, plan::Admission::kReserve},
                      FaultyCase{"kimi_linear", 5, 3, plan::Admission::kOptimistic, 2},
                      FaultyCase{"lfm2_moe", 5, 1, plan::Admission::kOptimistic}),
    [](const auto& param) {
      return std::string(param.param.fixture) + "_" + std::to_string(param.param.states) + "_" +
             std::to_string(param.param.kept);
    });

// The state may be the cause.
TEST(StatesFaultsAlone, NobodyFindsTheStateOfAFailedRequest) {
  Loaded loaded("qwen3_5", {.kv_block_count = 20, .state_count = 4, .batch_tokens_max = 64});
  EngineOptions options{.batch_tokens_max = 20, .kept_state_count = 2};
  options.faults.on_logits = [](RequestId id, int32_t choice, std::span<float> logits) {
    if (id == 1 && choice == 1) logits[9] = std::nanf("");
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  EngineRequest request{.tokens_max = 3, .ignore_eos = true, .choice_count = 2};
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(5 + i);
  for (const int64_t cached : {-1, 0, 16}) {
    const auto sink = sink_for(request);
    value_of(engine->submit(request, sink));
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->report ? sink->report->cached_tokens : -1, cached);
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

// Two adapters that are loaded and unloaded all the time, and who may run with them.
class MovingAdapters {
 public:
  MovingAdapters(Loaded& loaded, const std::vector<model::AdapterSource>& sources)
      : loaded_(loaded), sources_(sources), leases_(sources.size()) {
    for (size_t i = 0; i < sources.size(); ++i) movers_.emplace_back([this, i] { move(i); });
  }
  ~MovingAdapters() {
    over_ = true;
    for (std::thread& mover : movers_) mover.join();
  }
  MovingAdapters(const MovingAdapters&) = delete;
  MovingAdapters& operator=(const MovingAdapters&) = delete;

  // Null while it is not there.
  model::AdapterLease lease(size_t adapter) {
    const std::lock_guard lock(mutex_);
    return leases_[adapter];
  }
  int64_t loads() const { return loads_; }

 private:
  void move(size_t adapter) {
    CpuDevice device({.thread_count = 1});
    const auto stream = value_of(device.make_stream());
    while (!over_) {
      auto loaded = loaded_.model->adapter_rooms().load(sources_[adapter],
                                                        loaded_.model->architecture(), *stream);
      if (loaded) {
        ++loads_;
        put(adapter, std::move(*loaded));
      } else {
        EXPECT_EQ(loaded.error().code, Code::kExhausted);  // leases of its last time are held
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      put(adapter, nullptr);
    }
  }
  void put(size_t adapter, model::AdapterLease lease) {
    const std::lock_guard lock(mutex_);
    leases_[adapter].swap(lease);
  }

  Loaded& loaded_;
  const std::vector<model::AdapterSource> sources_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> loads_ = 0;
  std::mutex mutex_;
  std::vector<model::AdapterLease> leases_;
  std::vector<std::thread> movers_;
};

// Some leave at any moment, some batches are lost, iterations take longer and shorter.
class CrowdWithStates {
 public:
  explicit CrowdWithStates(const std::string& fixture)
      : folders_(fixture),
        sources_(folders_.sources.begin(), folders_.sources.begin() + 2),
        kinds_(requests_with_states(3, 6, 3)),
        loaded_(fixture,
                {.kv_block_count = 24,
                 .state_count = 7,
                 .batch_tokens_max = 32,
                 .adapter_rooms = 2,
                 .adapter_rank_max = 8},
                /*threads=*/2) {
    Loaded whole(fixture, {.batch_tokens_max = 32, .adapters = sources_});
    for (const EngineRequest& kind : kinds_) {
      for (int32_t adapter = model::kNoAdapter; adapter < 2; ++adapter) {
        EngineRequest request = kind;
        request.adapter = adapter;
        expected_.push_back(alone(whole, request));
      }
    }
  }

  void run(int thread_count, int each) {
    ThreadTeam team(2);
    EngineOptions options{.admission = plan::Admission::kOptimistic,
                          .batch_requests_max = 4,
                          .batch_tokens_max = 16,
                          .kept_state_count = 3,
                          .drafts = {.tokens_max = 3},
                          .sampling_team = &team};
    options.faults.before_forward = [](int64_t iteration) -> Status {
      std::this_thread::sleep_for(std::chrono::microseconds(iteration * 37 % 300));
      if (iteration % 31 == 30) return fail(Code::kUnavailable, "injected");
      return {};
    };
    engine_ = value_of(Engine::create(*loaded_.model, loaded_.tokenizer, options));
    {
      MovingAdapters adapters(loaded_, sources_);
      std::vector<std::thread> threads;
      for (int t = 0; t < thread_count; ++t) {
        threads.emplace_back([&, t] {
          Rng rng(derive_key(4, "crowd", static_cast<uint64_t>(t)));
          // On, until one has met an adapter: a busy machine may load and unload it unseen.
          for (int i = 0; i < each || (compared_with_adapter_ == 0 && i < 100 * each); ++i) {
            ask(rng, adapters);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_GT(adapters.loads(), 4);
    }
    EXPECT_TRUE(engine_->drain(20));
    expect_clean(*engine_);
    EXPECT_EQ(loaded_.model->adapter_rooms().free_count(), 2);
    EXPECT_GT(compared_, thread_count);
    EXPECT_GT(compared_with_adapter_, 0);
  }

 private:
  void ask(Rng& rng, MovingAdapters& adapters) {
    const size_t kind = rng.below(kinds_.size());
    const size_t wanted = rng.below(3);  // 0: the base
    const model::AdapterLease lease = wanted == 0 ? nullptr : adapters.lease(wanted - 1);
    EngineRequest request = kinds_[kind];
    if (lease) request.adapter = lease->number;
    const auto sink = sink_for(request);
    const RequestId id = value_of(engine_->submit(request, sink));
    const bool leaves = rng.below(3) == 0;
    if (leaves) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng.below(4000)));
      engine_->cancel(id);
    }
    EXPECT_LE(engine_->status(true).kv_blocks_live, 24);
    ASSERT_TRUE(sink->wait());
    if (leaves || sink->error) return;
    EXPECT_EQ(sink->outcome, expected_[3 * kind + (lease ? wanted : 0)]) << kind << " " << wanted;
    ++compared_;
    if (lease) ++compared_with_adapter_;
  }

  AdapterFolders folders_;
  std::vector<model::AdapterSource> sources_;
  std::vector<EngineRequest> kinds_;
  std::vector<Outcome> expected_;  // of each kind: with the base, with each adapter
  Loaded loaded_;
  std::unique_ptr<Engine> engine_;
  std::atomic<int> compared_ = 0;
  std::atomic<int> compared_with_adapter_ = 0;
};

TEST(StatesFaultsAlone, ManyThreadsAndAdaptersThatComeAndGo) {
  for (const char* fixture : {"qwen3_5", "lfm2"}) CrowdWithStates(fixture).run(4, 7);
}

}  // namespace
}  // namespace jige::serve
