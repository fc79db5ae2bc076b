// A training step as a list of typed tasks over (node of the model, micro-batch).
//
// The list is data: an executor runs it in order, another generator may make another list (several
// devices, other memory bounds) for the same tasks. Rules every list keeps: F of a node comes after
// F of its input, X after F of the same micro-batch and after X of the node behind it, W after X.
// Gradients are sums over micro-batches in ascending order: W of one node must keep that order.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jige::train {

enum class StepTaskKind : uint8_t {
  kForward,         // F
  kBackwardInput,   // X
  kBackwardWeight,  // W
  kHeadPass,        // F, X and W of the head in one pass over its logits
};

struct Task {
  StepTaskKind kind;
  int32_t node;
  int32_t micro_batch;

  bool operator==(const Task&) const = default;
};

// One device, one micro-batch after the other: F up the chain, the head in one pass, then X and W
// of each node down the chain. Holds the activations of one micro-batch and one `pending` at a
// time. REQUIRES: node_count >= 2.
std::vector<Task> one_device_tasks(size_t node_count, size_t micro_batch_count);

// The same of one micro-batch in two halves, between which its losses are read: F of every node,
// the head's too; then the head in one pass and the rest of the way down. REQUIRES: node_count
// >= 2.
struct TwoPassTasks {
  std::vector<Task> forward, backward;
};
TwoPassTasks two_pass_tasks(size_t node_count);

}  // namespace jige::train
