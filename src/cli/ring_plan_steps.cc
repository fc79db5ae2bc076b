#include "cli/ring_plan_steps.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file.h"
#include "cli/ring_mix_report.h"
#include "cli/shell_word.h"
#include "plan/nccl_export.h"
#include "plan/ring_plan_json.h"

namespace jige::cli {
namespace {

Status write_nccl(const plan::NcclExport& out, const std::string& path) {
  JIGE_DO(write_file_atomic(path, out.graph_xml));
  std::string environment = out.environment;
  const std::string placeholder = "NCCL_GRAPH_FILE=graph.xml";
  environment.replace(environment.find(placeholder), placeholder.size(),
                      "NCCL_GRAPH_FILE=" + shell_word(std::filesystem::absolute(path).string()));
  return write_file_atomic(path + ".env", environment);
}

}  // namespace

std::function<Result<double>(const std::vector<int32_t>&)> ring_collective(
    const plan::RingProblem& problem, profile::CollectiveMeter& meter, PlanProgress& progress) {
  return [&](const std::vector<int32_t>& nodes) -> Result<double> {
    profile::CollectiveTask task{.rings = {{{}, 1}}};
    for (const int32_t node : nodes) {
      task.rings.front().order.push_back(problem.components[static_cast<size_t>(node)]);
    }
    JIGE_TRY(const profile::CollectiveTimes times, progress.collective(meter, task));
    return times.edge_gb_per_s;
  };
}

Status RingPlanSteps::run() {
  if (request_.rings_max > 1) JIGE_DO(add_mix());
  json_ = plan::ring_plan_to_json(problem_, single_, bench_.profiler().source(),
                                  mix_ ? &*mix_ : nullptr);
  if (request_.all_to_all) JIGE_DO(add_rounds());
  if (request_.message_bytes > 0) JIGE_DO(add_trees());
  if (!request_.nccl.empty()) exported_ = add_nccl();
  if (exported_ && !request_.msccl.empty()) exported_ = add_msccl();
  return {};
}

plan::MeasuredMix RingPlanSteps::rings() const {
  if (mix_) return mix_->best.front();
  const plan::MeasuredRing& best = single_.best.front();
  return {.name = "best ring",
          .mix = {.rings = {{best.ring, 1}}, .predicted = best.predicted},
          .rate = best.rate,
          .half_width = best.half_width};
}

std::vector<int32_t> RingPlanSteps::components_of(const std::vector<int32_t>& nodes) const {
  std::vector<int32_t> components;
  for (const int32_t node : nodes) {
    components.push_back(problem_.components[static_cast<size_t>(node)]);
  }
  return components;
}

std::vector<profile::WeightedOrder> RingPlanSteps::orders_of(const plan::RingMix& mix) const {
  std::vector<profile::WeightedOrder> rings;
  for (const plan::WeightedRing& ring : mix.rings) {
    profile::WeightedOrder& order = rings.emplace_back(profile::WeightedOrder{{}, ring.weight});
    for (const topology::Transfer& t : plan::ring_transfers(problem_, ring.ring)) {
      order.order.push_back(t.src);
    }
  }
  return rings;
}

Status RingPlanSteps::add_mix() {
  plan::RingMixOptions options{.rings_max = request_.rings_max,
                               .budget_s = options_.budget_s,
                               .tolerance = options_.tolerance};
  if (request_.run_collectives) {
    options.collective = [&](const plan::RingMix& mix) -> Result<double> {
      JIGE_TRY(const profile::CollectiveTimes times, run_collective({.rings = orders_of(mix)}));
      return times.edge_gb_per_s;
    };
  }
  JIGE_TRY(mix_, plan::plan_mix(problem_, bench_.profiler(), single_, options));
  text_ += ring_mix_report(problem_, *mix_, bench_.profiler().source());
  return {};
}

Result<profile::CollectiveTimes> RingPlanSteps::run_collective(
    const profile::CollectiveTask& task) {
  return progress_.collective(*bench_.collectives(), task);
}

// GB/s that every node sends.
Result<double> RingPlanSteps::run_rounds(const std::vector<plan::Round>& rounds) {
  profile::CollectiveTask task{.rings = {{problem_.components, 1}}};
  for (const plan::Round& round : rounds) {
    auto& pairs = task.rounds.emplace_back();
    for (const topology::Transfer& t : plan::ring_transfers(problem_, round)) {
      pairs.emplace_back(t.src, t.dst);
    }
  }
  JIGE_TRY(const profile::CollectiveTimes times, run_collective(task));
  const auto nodes = static_cast<double>(problem_.node_count);
  return static_cast<double>(times.bytes) * (nodes - 1) / nodes / times.middle_s / 1e9;
}

Status RingPlanSteps::add_rounds() {
  plan::RoundPlanOptions options{.budget_s = options_.budget_s,
                                 .tolerance = options_.tolerance,
                                 .limits = {.seed = options_.seed}};
  if (request_.run_collectives) {
    options.collective = [&](const std::vector<plan::Round>& rounds) { return run_rounds(rounds); };
  }
  JIGE_TRY(const plan::RoundPlan planned, plan::plan_rounds(problem_, bench_.profiler(), options));
  plan::add_rounds_to_json(json_, problem_, planned);
  text_ += rounds_report(problem_, planned, bench_.profiler().source());
  return {};
}

// Seconds of an all-reduce.
Result<double> RingPlanSteps::run_trees(const plan::DoubleTree* trees, int64_t bytes) {
  profile::CollectiveTask task{.rings = orders_of(rings().mix), .bytes = bytes};
  if (trees) task.trees = components_of(trees->nodes);
  JIGE_TRY(const profile::CollectiveTimes times, run_collective(task));
  return times.middle_s;
}

Status RingPlanSteps::add_trees() {
  plan::TreePlanOptions options{.latency_s = request_.latency_s,
                                .budget_s = options_.budget_s,
                                .tolerance = options_.tolerance,
                                .message_bytes = request_.message_bytes,
                                .limits = {.seed = options_.seed}};
  if (request_.run_collectives) {
    options.collective = [&](const plan::DoubleTree* trees, int64_t bytes) {
      return run_trees(trees, bytes);
    };
  }
  JIGE_TRY(trees_, plan::plan_trees(problem_, bench_.profiler(), single_, options));
  const double ring_rate = rings().rate;
  plan::add_trees_to_json(json_, *trees_, ring_rate);
  text_ += trees_report(problem_, *trees_, static_cast<double>(request_.message_bytes), ring_rate);
  return {};
}

Status RingPlanSteps::add_nccl() {
  JIGE_TRY(const plan::NcclVersion version, plan::parse_nccl_version(request_.nccl_version));
  JIGE_TRY(const plan::NcclExport out,
           plan::export_to_nccl(problem_, rings(), bench_.profiler(), version));
  JIGE_DO(write_nccl(out, request_.nccl));
  json_["nccl"] = {{"rate", out.rate}, {"channels", out.channels}, {"lost", out.lost}};
  text_ += nccl_report(out, request_.nccl);
  return {};
}

Status RingPlanSteps::write_trees(const std::string& path, const plan::MscclRange& range) {
  if (range.bytes_max == 0) {
    // A runtime would take 0 for no end at all, and trees that were written before for these.
    std::error_code none_there;
    std::filesystem::remove(path, none_there);
    text_ += fmt::format("\nMSCCL: no {}, rings are faster at every size\n", path);
    return {};
  }
  JIGE_DO(
      write_file_atomic(path, plan::write_msccl_trees(trees_->best.front().trees.nodes, range)));
  text_ += fmt::format("\nMSCCL by {}: double trees up to {} bytes\n", path, range.bytes_max);
  return {};
}

// Rings, and the trees beside them for messages up to where rings are faster.
Status RingPlanSteps::add_msccl() {
  plan::MscclRange range;
  if (trees_) {
    const plan::MscclRange small{.bytes_max =
                                     std::min(range.bytes_max, trees_->bytes_max(rings().rate))};
    range.bytes_min = std::min(small.bytes_max + 1, range.bytes_max);
    JIGE_DO(write_trees(request_.msccl + ".trees", small));
  }
  JIGE_TRY(const plan::MscclExport out,
           plan::export_to_msccl(problem_, rings().mix, bench_.profiler(), range));
  JIGE_DO(write_file_atomic(request_.msccl, out.xml));
  json_["msccl"] = {{"rate", out.rate}, {"channels", out.channels}, {"lost", out.lost}};
  text_ += msccl_report(out, request_.msccl);
  return {};
}

}  // namespace jige::cli
