// PlacedAttention: an Attention that finds its memory by three functions of its form, from which
// the sizes of that memory follow.
//
// Memory names what the parts of a form's memory hold:
//   struct Activations   what F leaves for X and W; an F that saves nothing has them, but for what
//                        only X and W read, in its workspace
//   struct Gradients     what X leaves for W
//   struct Work          the rest of a task's workspace
//
// Threads: const.
#pragma once

#include "model/attention.h"

namespace jige::model {

template <typename Memory>
class PlacedAttention : public Attention {
 public:
  using Activations = typename Memory::Activations;
  using Gradients = typename Memory::Gradients;
  using Work = typename Memory::Work;

  int64_t saved_bytes(int64_t token_count, DType compute) const final {
    Placement at;
    place_activations(at, token_count, compute, true);
    return at.peak_bytes();
  }
  int64_t pending_bytes(int64_t token_count, DType compute) const final {
    Placement at;
    place_pending(at, token_count, compute);
    return at.peak_bytes();
  }
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const final {
    Placement at;
    if (use == PackFor::kInference) place_activations(at, token_count, compute, false);
    place_work(at, token_count, compute, use);
    return at.peak_bytes();
  }

 protected:
  virtual Activations place_activations(Placement& at, int64_t token_count, DType compute,
                                        bool saves) const = 0;
  virtual Gradients place_pending(Placement& at, int64_t token_count, DType compute) const = 0;
  virtual Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const = 0;

  // What F finds in a task's memory.
  struct Forward {
    Activations saved;
    Work work;
  };
  Forward place_forward(const AttentionMemory& memory, int64_t token_count, DType compute) const {
    const bool saves = bool(memory.saved);
    Placement saved(memory.saved);
    Placement workspace(memory.workspace);
    Forward views;
    views.saved = place_activations(saves ? saved : workspace, token_count, compute, saves);
    views.work = place_work(workspace, token_count, compute,
                            saves ? PackFor::kTraining : PackFor::kInference);
    return views;
  }

  // What X and W find there.
  struct Backward {
    Activations saved;
    Gradients pending;
    Work work;
  };
  Backward place_backward(const AttentionMemory& memory, int64_t token_count, DType compute) const {
    Placement saved(memory.saved);
    Placement pending(memory.pending);
    Placement workspace(memory.workspace);
    return {.saved = place_activations(saved, token_count, compute, true),
            .pending = place_pending(pending, token_count, compute),
            .work = place_work(workspace, token_count, compute, PackFor::kTraining)};
  }
};

}  // namespace jige::model
