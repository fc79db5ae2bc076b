#include "plan/pipeline_verify.h"

#include "plan/pipeline_limits.h"
#include "plan/pipeline_passes.h"
#include "plan/pipeline_verify_parts.h"

namespace jige::plan {
namespace {

using enum TaskKind;

class PassVerifier : public VerifierBase {
 public:
  using VerifierBase::VerifierBase;

  Status run() const {
    for (const TaskKind kind : {kForward, kRecompute, kBackwardInput, kBackwardWeight}) {
      JIGE_DO(complete(kind));
    }
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      JIGE_DO(one_place(b));
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) JIGE_DO(in_order(b, m));
    }
    return {};
  }

 private:
  // Every pass is there, cut alike and on one device for all micro-batches, and in their order.
  Status complete(TaskKind kind) const {
    if (kind == kRecompute && !schedule_.recompute) return no_recompute();
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        const int32_t task = passes_.pass(kind, b, m);
        if (task < 0) {
          return fail(Code::kCorrupt, "no task runs {} of block {} for micro-batch {}",
                      kind_name(kind), b, m);
        }
        if (m == 0) continue;
        const int32_t earlier = passes_.pass(kind, b, m - 1);
        if (at(task).blocks != at(earlier).blocks || at(task).device != at(earlier).device) {
          return fail(Code::kCorrupt, "{} and {} must work on the same blocks and device",
                      name(earlier), name(task));
        }
        JIGE_DO(require_before(earlier, task, "micro-batches are taken in ascending order"));
      }
    }
    return {};
  }

  Status no_recompute() const {
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        if (passes_.pass(kRecompute, b, m) >= 0) {
          return fail(Code::kCorrupt, "{} in a schedule without recompute",
                      name(passes_.pass(kRecompute, b, m)));
        }
      }
    }
    return {};
  }

  // X and W of a block, and what makes their activations, agree on blocks and device.
  Status one_place(int32_t b) const {
    const TaskKind source = schedule_.recompute ? kRecompute : kForward;
    const int32_t weight = passes_.pass(kBackwardWeight, b, 0);
    for (const TaskKind kind : {source, kBackwardInput}) {
      const int32_t other = passes_.pass(kind, b, 0);
      if (at(other).blocks == at(weight).blocks && at(other).device == at(weight).device) continue;
      return fail(Code::kCorrupt,
                  "{} and {} must work on the same blocks and device, for W needs what the other "
                  "keeps",
                  name(other), name(weight));
    }
    return {};
  }

  Status in_order(int32_t b, int32_t m) const {
    const int32_t source = passes_.pass(schedule_.recompute ? kRecompute : kForward, b, m);
    const int32_t input = passes_.pass(kBackwardInput, b, m);
    JIGE_DO(require_before(source, input, "X needs the activations of its blocks"));
    return require_before(input, passes_.pass(kBackwardWeight, b, m),
                          "W needs the gradient that X passes through its blocks");
  }
};

// One end behind everything, and no barrier without a purpose.
class EndVerifier : public VerifierBase {
 public:
  using VerifierBase::VerifierBase;

  Status run() const {
    std::vector<int32_t> barriers;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind == kBarrier) barriers.push_back(i);
    }
    const bool gathers =
        schedule_.optimizer == OptimizerMode::kSync || schedule_.clip == ClipMode::kExact;
    const size_t wanted = gathers ? 2 : 1;
    if (barriers.size() != wanted) {
      return fail(Code::kCorrupt, "{} barriers, there must be {}: {}the end of the step",
                  barriers.size(), wanted, gathers ? "between gradients and updates, and " : "");
    }
    for (const PipelineQueue& queue : graph_.queues()) {
      const int32_t last = queue.tasks.back();
      if (last == barriers.back()) continue;
      JIGE_DO(require_before(last, barriers.back(), "the step ends when everything is done"));
    }
    return {};
  }
};

}  // namespace

Status verify_pipeline(const PipelineSchedule& schedule) {
  JIGE_DO(check_fields(schedule));
  JIGE_TRY(const PipelinePasses passes, PipelinePasses::create(schedule));
  JIGE_TRY(const PipelineGraph graph, PipelineGraph::create(schedule));
  JIGE_DO(check_clocks(graph));
  const HappensBefore order(graph);
  const VerifierParts parts{schedule, passes, graph, order};
  JIGE_DO(PassVerifier(parts).run());
  JIGE_DO(verify_messages(parts));
  JIGE_DO(EndVerifier(parts).run());
  JIGE_DO(verify_updates(parts));
  return verify_parameters(parts);
}

}  // namespace jige::plan
