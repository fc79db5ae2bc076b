#include <map>
#include <utility>

#include "plan/pipeline_verify_parts.h"

namespace jige::plan {
namespace {

using enum TaskKind;

class MessageVerifier : public VerifierBase {
 public:
  using VerifierBase::VerifierBase;

  Status run() {
    needed_.assign(schedule_.tasks.size(), false);
    for (int32_t b = 1; b < schedule_.block_count; ++b) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        JIGE_DO(handed_over(kSendActivation, b, m, passes_.pass(kForward, b - 1, m),
                            passes_.pass(kForward, b, m)));
        JIGE_DO(handed_over(kSendGradient, b, m, passes_.pass(kBackwardInput, b, m),
                            passes_.pass(kBackwardInput, b - 1, m)));
      }
    }
    if (schedule_.recompute) JIGE_DO(checkpoints());
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      const bool message = is_send(at(i).kind) || is_receive(at(i).kind);
      if (message && !needed_[static_cast<size_t>(i)]) {
        return fail(Code::kCorrupt, "{} carries what nobody needs", name(i));
      }
    }
    return arrival_order();
  }

 private:
  // What `maker` makes at boundary b reaches `user`: in one task, on one device, or by a message.
  Status handed_over(TaskKind kind, int32_t b, int32_t m, int32_t maker, int32_t user) {
    if (maker == user) return {};
    if (at(maker).device == at(user).device) {
      return require_before(maker, user, "it works on what the other makes");
    }
    const int32_t send = passes_.message(kind, b, m);
    const int32_t receive = passes_.message(receive_of(kind), b, m);
    if (send < 0 || receive < 0) {
      return fail(Code::kCorrupt, "{} needs boundary {} from {}, but no task is {}", name(user), b,
                  name(maker), kind_name(send < 0 ? kind : receive_of(kind)));
    }
    const bool ends_agree =
        at(send).device == at(maker).device && at(send).peer == at(user).device &&
        at(receive).device == at(user).device && at(receive).peer == at(maker).device;
    if (!ends_agree) {
      return fail(Code::kCorrupt, "{} and {} do not lead from device {} to device {}", name(send),
                  name(receive), at(maker).device, at(user).device);
    }
    needed_[static_cast<size_t>(send)] = needed_[static_cast<size_t>(receive)] = true;
    JIGE_DO(require_before(maker, send, "a message leaves when its contents are made"));
    JIGE_DO(require_before(send, receive, "a message is received after it is sent"));
    return require_before(receive, user, "it works on what arrives");
  }

  // Every R has the input of its blocks; block 0 works on token ids, which every device has.
  Status checkpoints() {
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        const int32_t user = passes_.pass(kRecompute, b, m);
        const int32_t holder = passes_.pass(kForward, b, m);
        if (at(user).blocks.begin != b) continue;
        if (b == 0 && at(user).device != at(holder).device) continue;
        JIGE_DO(handed_over(kCheckpointSend, b, m, holder, user));
      }
    }
    return {};
  }

  // In-order links: what leaves first arrives first, for every pair of devices.
  Status arrival_order() const {
    std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> sent;
    for (const PipelineQueue& queue : graph_.queues()) {
      if (queue.kind != QueueKind::kSend) continue;
      for (const int32_t send : queue.tasks) sent[{queue.device, at(send).peer}].push_back(send);
    }
    for (const PipelineQueue& queue : graph_.queues()) {
      if (queue.kind != QueueKind::kReceive) continue;
      const std::vector<int32_t>& sends = sent[{queue.peer, queue.device}];
      for (size_t i = 0; i < queue.tasks.size(); ++i) {
        const PipelineTask& receive = at(queue.tasks[i]);
        const bool matches = i < sends.size() && receive_of(at(sends[i]).kind) == receive.kind &&
                             at(sends[i]).blocks == receive.blocks &&
                             at(sends[i]).micro_batch == receive.micro_batch;
        if (matches) continue;
        return fail(Code::kCorrupt,
                    "message {} from device {} to device {} is sent as {} and received as {}; an "
                    "in-order link would stand still",
                    i, queue.peer, queue.device, i < sends.size() ? name(sends[i]) : "nothing",
                    name(queue.tasks[i]));
      }
    }
    return {};
  }

  std::vector<bool> needed_;
};

}  // namespace

Status verify_messages(const VerifierParts& parts) { return MessageVerifier(parts).run(); }

}  // namespace jige::plan
