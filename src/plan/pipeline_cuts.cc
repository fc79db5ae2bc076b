#include "plan/pipeline_cuts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/pipeline_generate.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_partition.h"

namespace jige::plan {
namespace {

constexpr int kFitRounds = 24;  // each takes a block or more from a device

std::vector<double> block_work(const PipelineCosts& costs, const ScheduleRequest& candidate,
                               Balance balance) {
  std::vector<double> work;
  const std::vector<int64_t> bytes = block_bytes(costs, candidate);
  for (size_t b = 0; b < costs.blocks.size(); ++b) {
    const BlockCost& block = costs.blocks[b];
    const double backward = block.backward_input_s + block.backward_weight_s +
                            (candidate.recompute ? block.recompute_s : 0);
    work.push_back(balance == Balance::kForward    ? block.forward_s
                   : balance == Balance::kBackward ? backward
                   : balance == Balance::kBoth     ? block.forward_s + backward
                                                   : static_cast<double>(bytes[b]));
  }
  return work;
}

// By stage: how long work takes on its device, or how much of its device's memory a byte is.
std::vector<double> stage_paces(const TrainPlanRequest& request, Balance balance,
                                std::span<const PipelineStage> stages) {
  std::vector<double> paces;
  for (const PipelineStage& stage : stages) {
    const auto d = static_cast<size_t>(stage.device);
    const double share = request.budget.own_bytes.empty()
                             ? 1
                             : 1 / static_cast<double>(std::max<int64_t>(request.budget.of(d), 1));
    paces.push_back(balance == Balance::kBytes ? share : request.costs.pace(stage.device));
  }
  return paces;
}

int64_t bytes_of(const std::vector<int64_t>& block_bytes, BlockRange blocks) {
  return std::accumulate(block_bytes.begin() + blocks.begin, block_bytes.begin() + blocks.end,
                         int64_t{0});
}

// Narrows the limits of the stages of devices that need too much, in proportion: what does not
// grow with the stages is ignored, so that limits come down from above.
void narrow(const TrainPlanRequest& request, const TrainPrediction& prediction,
            const std::vector<int64_t>& block_bytes, const std::vector<PipelineStage>& stages,
            std::vector<int64_t>& limits) {
  const int64_t always = request.costs.workspace_bytes;
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto d = static_cast<size_t>(stages[s].device);
    const int64_t needed = prediction.bytes_of_devices[d], there = request.budget.of(d);
    if (needed <= there) continue;
    const double part = static_cast<double>(std::max<int64_t>(there - always, 0)) /
                        static_cast<double>(std::max<int64_t>(needed - always, 1));
    const int64_t now = bytes_of(block_bytes, stages[s].blocks);
    const auto in_part = static_cast<int64_t>(part * static_cast<double>(now));
    limits[s] = std::min({limits[s], in_part, now - 1});
  }
}

bool within_host(const TrainPrediction& prediction, const MemoryBudget& budget) {
  return prediction.host_bytes <= budget.host_bytes && prediction.total_bytes <= budget.total_bytes;
}

bool within_devices(const TrainPrediction& prediction, const MemoryBudget& budget) {
  for (size_t d = 0; d < prediction.bytes_of_devices.size(); ++d) {
    if (prediction.bytes_of_devices[d] > budget.of(d)) return false;
  }
  return true;
}

double seconds_per_micro_batch(const TrainPlanRequest& request, const ScheduleRequest& candidate) {
  const Result<PipelineSchedule> schedule = generate_pipeline(candidate);
  if (!schedule) return std::numeric_limits<double>::infinity();
  const Result<PipelineGraph> graph = PipelineGraph::create(*schedule);
  if (!graph) return std::numeric_limits<double>::infinity();
  return time_tasks(*schedule, *graph, request.costs).step_s / schedule->micro_batch_count;
}

// One cut, or two that follow one another and shift a stage, by a block.
struct CutMove {
  std::vector<int32_t> ScheduleRequest::*cuts;
  size_t first = 1;
  size_t count = 1;
  int32_t by = 1;
};

// The candidate moved; nothing where it cannot be, is no faster or does not fit.
std::optional<FittedCandidate> after_move(const TrainPlanRequest& request,
                                          const FittedCandidate& from, const CutMove& move) {
  ScheduleRequest candidate = from.request;
  std::vector<int32_t>& cuts = candidate.*move.cuts;
  const size_t end = move.first + move.count;
  if (end > cuts.size()) return std::nullopt;
  for (size_t at = move.first; at < end; ++at) cuts[at] += move.by;
  const auto blocks = static_cast<int32_t>(request.costs.blocks.size());
  const int32_t next = end < cuts.size() ? cuts[end] : blocks;
  if (cuts[move.first] <= cuts[move.first - 1] || cuts[end - 1] >= next) return std::nullopt;
  renew_times(request.costs, candidate);
  const double seconds = seconds_per_micro_batch(request, candidate);
  if (seconds >= from.prediction.seconds_per_micro_batch) return std::nullopt;
  Result<TrainPrediction> prediction = predict_candidate(request, candidate);
  if (!prediction || !within_devices(*prediction, request.budget)) return std::nullopt;
  if (!within_host(*prediction, request.budget)) return std::nullopt;
  return FittedCandidate{std::move(candidate), std::move(*prediction)};
}

}  // namespace

std::vector<int64_t> block_bytes(const PipelineCosts& costs, const ScheduleRequest& candidate) {
  std::vector<int64_t> bytes;
  for (const BlockCost& block : costs.blocks) {
    const int64_t state =
        candidate.optimizer == OptimizerMode::kDevice
            ? block.parameters * costs.state_bytes_per_parameter - block.master_bytes
            : 0;
    bytes.push_back(block.parameter_bytes + block.gradient_bytes + block.saved_bytes + state);
  }
  return bytes;
}

Result<std::vector<int32_t>> cut_stages(const TrainPlanRequest& request,
                                        const ScheduleRequest& candidate, Balance balance,
                                        std::span<const PipelineStage> stages,
                                        std::span<const int64_t> bytes_max) {
  const std::vector<double> work = block_work(request.costs, candidate, balance);
  const std::vector<double> paces = stage_paces(request, balance, stages);
  const std::vector<int64_t> bytes = block_bytes(request.costs, candidate);
  JIGE_TRY(Partition partition,
           balance_stages(work, static_cast<int32_t>(stages.size()),
                          {.paces = paces, .bytes = bytes, .bytes_max = bytes_max}));
  return std::move(partition.cuts);
}

void renew_times(const PipelineCosts& costs, ScheduleRequest& candidate) {
  if (candidate.defer != WeightDefer::kUnbounded) return;
  if (const Result<PipelineOrder> stages = pipeline_stages(candidate)) {
    candidate.times = stage_times(*stages, costs, candidate.recompute);
  }
}

std::optional<FittedCandidate> fit_to_devices(const TrainPlanRequest& request,
                                              ScheduleRequest candidate, TrainPrediction prediction,
                                              double seconds_max) {
  const bool apart = candidate.kind == ScheduleKind::kSPipe;
  const std::vector<int64_t> bytes = block_bytes(request.costs, candidate);
  std::vector<int64_t> forward_max, backward_max;
  for (int round = 0; round < kFitRounds; ++round) {
    const Result<PipelineOrder> stages = pipeline_stages(candidate);
    if (!stages) return std::nullopt;
    forward_max.resize(stages->forward.size(), std::numeric_limits<int64_t>::max());
    backward_max.resize(stages->backward.size(), std::numeric_limits<int64_t>::max());
    narrow(request, prediction, bytes, stages->forward, forward_max);
    narrow(request, prediction, bytes, stages->backward, backward_max);
    auto forward = cut_stages(request, candidate, apart ? Balance::kForward : Balance::kBoth,
                              stages->forward, forward_max);
    if (!forward) return std::nullopt;
    candidate.forward_cuts = std::move(*forward);
    if (apart) {
      auto backward =
          cut_stages(request, candidate, Balance::kBackward, stages->backward, backward_max);
      if (!backward) return std::nullopt;
      candidate.backward_cuts = std::move(*backward);
    }
    renew_times(request.costs, candidate);
    if (seconds_per_micro_batch(request, candidate) >= seconds_max) return std::nullopt;
    Result<TrainPrediction> made = predict_candidate(request, candidate);
    if (!made) return std::nullopt;
    prediction = std::move(*made);
    if (!within_devices(prediction, request.budget)) continue;
    if (!within_host(prediction, request.budget)) return std::nullopt;
    return FittedCandidate{std::move(candidate), std::move(prediction)};
  }
  return std::nullopt;
}

FittedCandidate move_cuts(const TrainPlanRequest& request, FittedCandidate candidate) {
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto cuts : {&ScheduleRequest::forward_cuts, &ScheduleRequest::backward_cuts}) {
      for (size_t first = 1; first < (candidate.request.*cuts).size(); ++first) {
        for (const size_t count : {size_t{1}, size_t{2}}) {
          for (const int32_t by : {-1, 1}) {
            auto better = after_move(request, candidate,
                                     {.cuts = cuts, .first = first, .count = count, .by = by});
            if (!better) continue;
            candidate = std::move(*better);
            moved = true;
          }
        }
      }
    }
  }
  return candidate;
}

}  // namespace jige::plan
