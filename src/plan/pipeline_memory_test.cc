#include "plan/pipeline_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/rng.h"
#include "plan/min_cut.h"
#include "plan/pipeline_peak.h"
#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

TEST(MinCut, FindsTheHeaviestClosedSetAsTryingAllSubsetsDoes) {
  Rng rng(derive_key(1, "closures"));
  for (int round = 0; round < 300; ++round) {
    const auto nodes = static_cast<size_t>(1 + rng.below(10));
    ClosureProblem problem(nodes);
    std::vector<int64_t> weights;
    for (size_t i = 0; i < nodes; ++i) {
      weights.push_back(static_cast<int64_t>(rng.below(41)) - 20);
      problem.add_weight(i, weights.back());
    }
    std::vector<std::pair<size_t, size_t>> required;
    for (uint64_t k = rng.below(2 * nodes); k-- > 0;) {
      const auto a = static_cast<size_t>(rng.below(nodes)),
                 b = static_cast<size_t>(rng.below(nodes));
      if (a == b) continue;
      required.push_back({a, b});
      problem.require(a, b);
    }
    const auto weight_of = [&](auto chosen) {
      int64_t sum = 0;
      for (size_t i = 0; i < nodes; ++i) sum += chosen(i) ? weights[i] : 0;
      for (const auto& [a, b] : required) {
        if (chosen(a) && !chosen(b)) return INT64_MIN;
      }
      return sum;
    };
    int64_t best = 0;
    for (uint64_t set = 0; set < (uint64_t{1} << nodes); ++set) {
      best = std::max(best, weight_of([&](size_t i) { return (set >> i & 1) != 0; }));
    }
    const ClosureProblem::Solution solution = problem.solve();
    EXPECT_EQ(solution.weight, best);
    EXPECT_EQ(weight_of([&](size_t i) { return bool{solution.chosen[i]}; }), best);
  }
}

struct Built {
  PipelineSchedule schedule;
  PipelineGraph graph;
  PipelineCosts costs;
  std::vector<PipelineBuffer> buffers;
};

Built build(const ScheduleRequest& request) {
  PipelineSchedule schedule = generate(request);
  Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  EXPECT_TRUE(graph);
  PipelineCosts costs = unit_costs(request.block_count);
  std::vector<PipelineBuffer> buffers = pipeline_buffers(schedule, costs);
  return {std::move(schedule), std::move(*graph), std::move(costs), std::move(buffers)};
}

PipelinePeaks peaks_of(const Built& built) {
  const HappensBefore order(built.graph);
  Result<PipelinePeaks> peaks = pipeline_peaks(built.schedule, built.graph, order, built.buffers);
  EXPECT_TRUE(peaks);
  return std::move(*peaks);
}

TEST(PipelineMemory, BuffersAppearBeforeTheyGo) {
  for (const auto& [devices, micro_batches] : {std::pair{2, 2}, {3, 3}}) {
    const std::vector<ScheduleRequest> requests = all_requests(devices, micro_batches, 2);
    for (size_t i = static_cast<size_t>(devices) % 2; i < requests.size(); i += 2) {
      const ScheduleRequest& request = requests[i];
      const Built built = build(request);
      const HappensBefore order(built.graph);
      for (const PipelineBuffer& buffer : built.buffers) {
        EXPECT_GT(buffer.bytes, 0);
        if (buffer.first < 0 || buffer.last < 0) continue;
        EXPECT_TRUE(buffer.first == buffer.last || order.before(buffer.first, buffer.last))
            << request_name(request) << ": " << buffer_name(buffer.kind) << " from "
            << describe_task(built.schedule, buffer.first) << " to "
            << describe_task(built.schedule, buffer.last);
      }
    }
  }
}

// All states that a schedule can reach: how many tasks of each queue have ended, and whether the
// next one runs. Gives the largest sum of buffers on each device and the host.
std::vector<int64_t> peaks_by_exploring(const Built& built) {
  const auto& queues = built.graph.queues();
  using State = std::array<char, 16>;  // per queue: 2 * ended + running
  struct Hash {
    size_t operator()(const State& state) const {
      return std::hash<std::string_view>()({state.data(), state.size()});
    }
  };
  struct Place {
    size_t queue;
    int position;
  };
  std::vector<Place> places;
  for (int32_t task = 0; task < static_cast<int32_t>(built.schedule.tasks.size()); ++task) {
    places.push_back({built.graph.queue_index(task), built.graph.position(task)});
    EXPECT_LT(places.back().position, 60);  // two of it in a character
  }
  const State start{};
  EXPECT_LE(queues.size(), start.size());
  if (queues.size() > start.size()) return {};
  std::unordered_set<State, Hash> seen{start};
  std::vector<State> open{start};
  std::vector<int64_t> most(static_cast<size_t>(built.schedule.device_count) + 1, 0);
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    const auto has_begun = [&](int32_t task) {
      const Place& place = places[static_cast<size_t>(task)];
      return state[place.queue] > 2 * place.position;
    };
    const auto has_ended = [&](int32_t task) {
      const Place& place = places[static_cast<size_t>(task)];
      return state[place.queue] > 2 * place.position + 1;
    };
    std::vector<int64_t> bytes(most.size(), 0);
    for (const PipelineBuffer& buffer : built.buffers) {
      const bool begun = buffer.first < 0 || has_begun(buffer.first);
      const bool over = buffer.last >= 0 && has_ended(buffer.last);
      if (begun && !over) bytes[static_cast<size_t>(buffer.device + 1)] += buffer.bytes;
    }
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], bytes[i]);
    for (size_t q = 0; q < queues.size(); ++q) {
      if (state[q] / 2 == static_cast<int32_t>(queues[q].tasks.size())) continue;
      const int32_t task = queues[q].tasks[static_cast<size_t>(state[q] / 2)];
      const auto& after = built.schedule.tasks[static_cast<size_t>(task)].after;
      if (state[q] % 2 == 0 && !std::ranges::all_of(after, has_ended)) continue;
      State next = state;
      ++next[q];
      if (seen.insert(next).second) open.push_back(next);
    }
  }
  return most;
}

TEST(PipelinePeak, IsTheMostOverAllReachableStates) {
  int explored = 0;
  const std::vector<ScheduleRequest> requests = all_requests(2, 2, 1);
  for (size_t i = 0; i < requests.size(); i += 23) {
    if (requests[i].block_count > 4 && requests[i].host_parameters) continue;  // too many states
    const Built built = build(requests[i]);
    const std::vector<int64_t> expected = peaks_by_exploring(built);
    const PipelinePeaks peaks = peaks_of(built);
    EXPECT_EQ(peaks.host.bytes, expected[0]) << request_name(requests[i]);
    for (size_t d = 0; d < peaks.devices.size(); ++d) {
      EXPECT_EQ(peaks.devices[d].bytes, expected[d + 1]) << request_name(requests[i]);
    }
    ++explored;
  }
  EXPECT_GT(explored, 6);
}

TEST(PipelinePeak, NoTimingExceedsIt) {
  Rng rng(derive_key(2, "times"));
  for (const ScheduleRequest& request : all_requests(3, 3, 2)) {
    if (rng.below(4) != 0) continue;
    Built built = build(request);
    const PipelinePeaks peaks = peaks_of(built);
    for (BlockCost& block : built.costs.blocks) {
      block.forward_s = rng.uniform();
      block.backward_input_s = 2 * rng.uniform();
      block.backward_weight_s = rng.uniform();
      block.recompute_s = rng.uniform();
    }
    built.costs.rates = {.fetch_bytes_per_s = 1 + 50 * rng.uniform(),
                         .offload_bytes_per_s = 1 + 50 * rng.uniform(),
                         .link_bytes_per_s = 1 + 50 * rng.uniform(),
                         .host_parameters_per_s = 1 + 20 * rng.uniform()};
    const PipelineTimes times = time_tasks(built.schedule, built.graph, built.costs);
    for (int32_t d = kHostDevice; d < request.devices; ++d) {
      const auto points = memory_over_time(built.graph, times, built.buffers, d);
      const int64_t peak = d < 0 ? peaks.host.bytes : peaks.devices[static_cast<size_t>(d)].bytes;
      EXPECT_LE(simulated_peak(points), peak) << request_name(request);
      if (d >= 0) {
        EXPECT_GT(simulated_peak(points), 0);
      }
    }
  }
}

// Norms and tables that passes read as they are: once where the optimizer's state is, once more
// where a device has a copy of them.
TEST(PipelineMemory, MastersThatPassesReadAreNotKeptTwiceBesideTheState) {
  for (const OptimizerMode optimizer : {OptimizerMode::kDevice, OptimizerMode::kSync}) {
    const PipelineSchedule schedule =
        generate({.devices = 1, .micro_batches = 1, .block_count = 3, .optimizer = optimizer});
    const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
    const HappensBefore order(*graph);
    const auto peaks_with = [&](int64_t master_bytes) {
      PipelineCosts costs;
      costs.blocks.assign(3,
                          {.parameters = 10, .parameter_bytes = 50, .master_bytes = master_bytes});
      return *pipeline_peaks(schedule, *graph, order, pipeline_buffers(schedule, costs));
    };
    const PipelinePeaks without = peaks_with(0), with = peaks_with(40);
    const bool on_device = optimizer == OptimizerMode::kDevice;
    EXPECT_EQ(without.devices[0].bytes - with.devices[0].bytes, on_device ? 120 : 0);
    EXPECT_EQ(without.host.bytes - with.host.bytes, on_device ? 0 : 120);
  }
}

TEST(PipelineMemory, TheHostHasWhatMessagesOfEveryDevicePassThrough) {
  const ScheduleRequest request{.devices = 3, .micro_batches = 3, .block_count = 3};
  const PipelineSchedule schedule = generate(request);
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  const HappensBefore order(*graph);
  const auto host_bytes = [&](int64_t staging_bytes) {
    PipelineCosts costs;
    costs.blocks.assign(3, {.parameters = 10, .input_bytes = 7});
    costs.staging_bytes = staging_bytes;
    return pipeline_peaks(schedule, *graph, order, pipeline_buffers(schedule, costs))->host.bytes;
  };
  EXPECT_EQ(host_bytes(1000), host_bytes(0) + 3000);
}

// Most pairs of (stage, micro-batch) whose activations a device may hold at once.
int64_t held(const ScheduleRequest& request, int32_t device) {
  PipelineSchedule schedule = generate(request);
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  PipelineCosts costs;
  costs.blocks.assign(static_cast<size_t>(request.block_count), {.saved_bytes = 1});
  costs.state_bytes_per_parameter = 0;
  const HappensBefore order(*graph);
  const auto buffers = pipeline_buffers(schedule, costs);
  const auto peaks = pipeline_peaks(schedule, *graph, order, buffers);
  return peaks->devices[static_cast<size_t>(device)].bytes;
}

TEST(PipelinePeak, SchedulesHoldTheMicroBatchesTheyAreKnownFor) {
  const int32_t p = 4, m = 10;
  for (int32_t d = 0; d < p; ++d) {
    ScheduleRequest r{.devices = p, .micro_batches = m, .block_count = p};
    r.kind = ScheduleKind::kGPipe;
    EXPECT_EQ(held(r, d), m);
    r.kind = ScheduleKind::k1F1B;
    EXPECT_EQ(held(r, d), p - d);
    r.kind = ScheduleKind::kZbH1;
    EXPECT_LE(held(r, d), p);
    r = natural_request(ScheduleKind::kZbV);
    r.devices = p;
    r.micro_batches = m;
    r.block_count = 2 * p;
    EXPECT_LE(held(r, d), 2 * p);  // of half the size
  }
}

TEST(PipelinePeak, DeferringByOneHoldsOneMoreAtMost) {
  for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kGPipe}) {
    ScheduleRequest r{.kind = kind, .devices = 4, .micro_batches = 9, .block_count = 4};
    const int64_t plain = held(r, 0);
    r.defer = WeightDefer::kOne;
    EXPECT_LE(held(r, 0), plain + 1);
  }
}

TEST(PipelinePeak, OffloadKeepsTwoStagesOfParametersOnADevice) {
  for (const ScheduleKind kind : {ScheduleKind::kMobius, ScheduleKind::kSPipe}) {
    ScheduleRequest r = natural_request(kind);
    r.devices = 2;
    r.micro_batches = 2;
    r.forward_stages = r.backward_stages = 6;
    r.block_count = 12;
    const PipelineSchedule schedule = generate(r);
    const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
    PipelineCosts costs;
    costs.blocks.assign(12, {.parameter_bytes = 100});
    const HappensBefore order(*graph);
    const auto peaks = pipeline_peaks(schedule, *graph, order, pipeline_buffers(schedule, costs));
    EXPECT_EQ(peaks->devices[0].bytes, 200) << schedule_name(kind);
    EXPECT_EQ(peaks->host.bytes, 1200);
  }
}

// Costs of a block and numbers of micro-batches that are allowed each may be too much together.
TEST(PipelinePeak, RefusesBytesThatCannotBeCounted) {
  ScheduleRequest r = natural_request(ScheduleKind::kGPipe);
  r.micro_batches = 2000;
  r.block_count = 1024;
  const PipelineSchedule schedule = *generate_pipeline(r);
  const PipelineGraph graph = *PipelineGraph::create(schedule);
  PipelineCosts costs;
  costs.blocks.assign(1024, {.saved_bytes = int64_t{1} << 38, .pending_bytes = int64_t{1} << 38});
  ASSERT_TRUE(check_costs(costs, 1024));
  EXPECT_TRUE(check_buffer_bytes(pipeline_buffers(schedule, costs)));
  costs.blocks.assign(1024, {.saved_bytes = int64_t{1} << 40, .pending_bytes = int64_t{1} << 40});
  ASSERT_TRUE(check_costs(costs, 1024));
  const auto peaks =
      pipeline_peaks(schedule, graph, HappensBefore(graph), pipeline_buffers(schedule, costs));
  ASSERT_FALSE(peaks);
  EXPECT_EQ(peaks.error().code, Code::kInvalidArgument);
  EXPECT_NE(peaks.error().message.find("4e+18 at most can be counted; take fewer"),
            std::string::npos)
      << peaks.error().message;
}

TEST(PipelinePeak, AByteLessIsRefusedWithTheMomentAndWhatIsThere) {
  ScheduleRequest r = natural_request(ScheduleKind::kSPipe);
  r.devices = 2;
  r.micro_batches = 4;
  r.backward_stages = 2;
  r.block_count = 8;
  const Built built = build(r);
  const PipelinePeaks peaks = peaks_of(built);
  const int64_t needed = peaks.device_bytes_max();
  EXPECT_TRUE(check_budgets(built.schedule, peaks, built.buffers,
                            {.device_bytes = needed, .host_bytes = peaks.host.bytes}));
  const Status device =
      check_budgets(built.schedule, peaks, built.buffers, {.device_bytes = needed - 1});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Code::kExhausted);
  for (const std::string& part :
       {fmt::format("can need {} bytes", needed), std::string("1 more than"),
        std::string("has begun"), std::string("saved activations")}) {
    EXPECT_NE(device.error().message.find(part), std::string::npos) << device.error().message;
  }
  const Status host =
      check_budgets(built.schedule, peaks, built.buffers, {.host_bytes = peaks.host.bytes - 1});
  ASSERT_FALSE(host);
  EXPECT_NE(host.error().message.find("the host can need"), std::string::npos);
}

}  // namespace
}  // namespace jige::plan
