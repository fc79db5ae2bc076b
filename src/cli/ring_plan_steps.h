// What `jige plan rings` does beside the one ring: mixtures, rounds of an all-to-all, trees, and
// files for NCCL and MSCCL. Each step adds to the plan's JSON and to the text for people.
//
//   RingPlanSteps steps(problem, single, options, *bench, request, progress);
//   JIGE_DO(steps.run());
//   steps.json(), steps.text()
//
// Threads: one thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/link_bench.h"
#include "cli/plan_progress.h"
#include "plan/msccl_export.h"
#include "plan/ring_mix_planner.h"
#include "plan/ring_planner.h"
#include "plan/round_planner.h"
#include "plan/tree_planner.h"

namespace jige::cli {

struct RingPlanRequest {
  int32_t rings_max = 1;
  bool all_to_all = false;
  int64_t message_bytes = 0;  // of small all-reduces; 0: no trees
  double latency_s = 10e-6;
  bool run_collectives = false;  // between hosts: finalists as real collectives
  std::string nccl, nccl_version, msccl;
};

// An all-reduce between hosts along a ring of nodes, as the options of plan_ring() want it.
std::function<Result<double>(const std::vector<int32_t>&)> ring_collective(
    const plan::RingProblem& problem, profile::CollectiveMeter& meter, PlanProgress& progress);

class RingPlanSteps {
 public:
  // All outlive it.
  RingPlanSteps(const plan::RingProblem& problem, const plan::RingPlan& single,
                const plan::RingPlanOptions& options, LinkBench& bench,
                const RingPlanRequest& request, PlanProgress& progress)
      : problem_(problem),
        single_(single),
        options_(options),
        bench_(bench),
        request_(request),
        progress_(progress) {}

  // Fails as planning and measuring do.
  Status run();
  // How writing for NCCL and MSCCL went: what they cannot take is a plan all the same.
  const Status& exported() const { return exported_; }

  Json& json() { return json_; }
  // Of all but the ring itself.
  const std::string& text() const { return text_; }

 private:
  Status add_mix();
  Status add_rounds();
  Status add_trees();
  Status add_nccl();
  Status add_msccl();
  Status write_trees(const std::string& path, const plan::MscclRange& range);
  // The rings that carry the data: the mixture, or the one ring.
  plan::MeasuredMix rings() const;
  std::vector<profile::WeightedOrder> orders_of(const plan::RingMix& mix) const;
  std::vector<int32_t> components_of(const std::vector<int32_t>& nodes) const;
  Result<profile::CollectiveTimes> run_collective(const profile::CollectiveTask& task);
  Result<double> run_rounds(const std::vector<plan::Round>& rounds);
  Result<double> run_trees(const plan::DoubleTree* trees, int64_t bytes);

  const plan::RingProblem& problem_;
  const plan::RingPlan& single_;
  const plan::RingPlanOptions& options_;
  LinkBench& bench_;
  const RingPlanRequest& request_;
  PlanProgress& progress_;
  std::optional<plan::RingMixPlan> mix_;
  std::optional<plan::TreePlan> trees_;
  Json json_;
  std::string text_;
  Status exported_;
};

}  // namespace jige::cli
