// The parts of plan/pipeline_verify.h and what they share.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_passes.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct VerifierParts {
  const PipelineSchedule& schedule;
  const PipelinePasses& passes;
  const PipelineGraph& graph;
  const HappensBefore& order;
};

class VerifierBase {
 public:
  explicit VerifierBase(const VerifierParts& parts)
      : schedule_(parts.schedule),
        passes_(parts.passes),
        graph_(parts.graph),
        order_(parts.order) {}

 protected:
  const PipelineTask& at(int32_t task) const { return schedule_.tasks[static_cast<size_t>(task)]; }
  std::string name(int32_t task) const { return describe_task(schedule_, task); }

  Status require_before(int32_t first, int32_t second, std::string_view reason) const {
    if (order_.before(first, second)) return {};
    return fail(Code::kCorrupt, "{} may start before {} has ended, but {}", name(second),
                name(first), reason);
  }

  const PipelineSchedule& schedule_;
  const PipelinePasses& passes_;
  const PipelineGraph& graph_;
  const HappensBefore& order_;
};

// Rule (3): inputs and messages. REQUIRES: rules (1) and (2).
Status verify_messages(const VerifierParts& parts);
// Rule (4): parameters. REQUIRES: rules (1) and (2).
Status verify_parameters(const VerifierParts& parts);
// Rules (5) and (6): gradients and updates. REQUIRES: rules (1) and (2).
Status verify_updates(const VerifierParts& parts);

}  // namespace jige::plan
