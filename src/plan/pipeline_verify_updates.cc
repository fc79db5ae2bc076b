#include <algorithm>

#include "plan/pipeline_verify_parts.h"

namespace jige::plan {
namespace {

using enum TaskKind;

class UpdateVerifier : public VerifierBase {
 public:
  using VerifierBase::VerifierBase;

  Status run() const {
    for (int32_t b = 0; b < schedule_.block_count; ++b) JIGE_DO(updated_once(b));
    if (schedule_.tied) JIGE_DO(updated_together());
    if (schedule_.host_parameters && !host()) {
      return fail(Code::kCorrupt, "parameters are on the host, but their optimizer on the device");
    }
    if (schedule_.optimizer == OptimizerMode::kSync || schedule_.clip == ClipMode::kExact) {
      return gathered();
    }
    return {};
  }

 private:
  bool host() const { return schedule_.optimizer != OptimizerMode::kDevice; }
  int32_t last_weight(int32_t b) const {
    return passes_.pass(kBackwardWeight, b, schedule_.micro_batch_count - 1);
  }

  Status updated_once(int32_t b) const {
    const int32_t weight = last_weight(b);
    const int32_t update = passes_.update(b);
    const int32_t offload = passes_.offload(b);
    if (update < 0) return fail(Code::kCorrupt, "no optimizer step updates block {}", b);
    if (host() != (offload >= 0)) {
      return host() ? fail(Code::kCorrupt, "no task takes the gradient of block {} to the host", b)
                    : fail(Code::kCorrupt, "{} although the optimizer is on the device",
                           name(offload));
    }
    for (const int32_t task : {update, offload}) {
      if (task < 0 ||
          (at(task).device == at(weight).device && at(task).blocks == at(weight).blocks))
        continue;
      return fail(Code::kCorrupt, "{} must be for the same blocks and device as {}", name(task),
                  name(weight));
    }
    // W of earlier micro-batches are before the last: rule (2).
    constexpr std::string_view kAll = "an update uses the gradients of all micro-batches";
    JIGE_DO(require_before(weight, host() ? offload : update, kAll));
    if (host()) JIGE_DO(require_before(offload, update, "the gradient must be on the host"));
    constexpr std::string_view kSame = "all passes of a step see the same parameters";
    for (const TaskKind kind : {kForward, kBackwardInput}) {
      JIGE_DO(
          require_before(passes_.pass(kind, b, schedule_.micro_batch_count - 1), update, kSame));
    }
    return {};
  }

  // What the last block shares with the first is updated with the first, by both gradients.
  Status updated_together() const {
    const int32_t last = schedule_.block_count - 1;
    const int32_t update = passes_.update(0);
    if (passes_.update(last) == update) return {};
    if (!host() && at(passes_.update(last)).device != at(update).device) {
      return fail(Code::kCorrupt,
                  "{} and {} share parameters, so with the optimizer on the device they must be on "
                  "one device",
                  name(update), name(passes_.update(last)));
    }
    constexpr std::string_view kBoth = "it uses the last block's part of the gradient";
    const int32_t gradient = host() ? passes_.offload(last) : last_weight(last);
    JIGE_DO(require_before(gradient, update, kBoth));
    return require_before(passes_.update(last), update,
                          "it renews the parameters that the last block shares with the first");
  }

  // The first barrier stands between all gradients, or all passes, and all updates.
  Status gathered() const {
    const auto first = std::find_if(schedule_.tasks.begin(), schedule_.tasks.end(),
                                    [](const PipelineTask& task) { return task.kind == kBarrier; });
    const auto barrier = static_cast<int32_t>(first - schedule_.tasks.begin());
    const bool sync = schedule_.optimizer == OptimizerMode::kSync;
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      const int32_t gradient = host() ? passes_.offload(b) : last_weight(b);
      JIGE_DO(require_before(gradient, barrier, "it waits for all gradients"));
      JIGE_DO(require_before(barrier, passes_.update(b),
                             sync ? "a sync optimizer waits for all passes"
                                  : "exact clipping needs the norm of all gradients first"));
    }
    for (const PipelineQueue& queue : graph_.queues()) {
      if (!sync || queue.kind != QueueKind::kCompute) continue;
      for (const int32_t task : queue.tasks) {
        if (!is_pass(at(task).kind)) continue;
        JIGE_DO(require_before(task, barrier, "a sync optimizer waits for all passes"));
      }
    }
    return {};
  }
};

}  // namespace

Status verify_updates(const VerifierParts& parts) { return UpdateVerifier(parts).run(); }

}  // namespace jige::plan
