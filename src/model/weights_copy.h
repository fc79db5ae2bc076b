// What the passes of one node read, gathered in one buffer: its packed matrices, and the values
// that are read as they are (norms, biases, tables). A device that does not hold the model holds
// such copies, node by node, for as long as it needs them.
//
//   bytes = copy_bytes(architecture, options, node)
//   copy_weights(stream, buffer, weights, node, CopyKind::kHostToDevice)
//   BlockWeights seen = copied_weights(architecture, options, node, buffer, gradients)
//
// Frozen parameters without gradients get none. Masters are not part of a copy.
// Threads: pure functions; copies are asynchronous on the stream.
#pragma once

#include <cstdint>

#include "model/block.h"
#include "model/weights.h"

namespace jige::model {

// Bytes of a copy, a multiple of 64.
int64_t copy_bytes(const Architecture& architecture, const WeightsOptions& options, size_t node);

// Bytes of a node's gradients, a multiple of 64.
int64_t gradient_bytes(const Architecture& architecture, const WeightsOptions& options,
                       size_t node);

// Fills a copy from weights that hold the node. REQUIRES: buffer of copy_bytes().
void copy_weights(Stream& stream, const TensorView& buffer, const ModelWeights& weights,
                  size_t node, CopyKind kind);

// The node as its tasks see it: values and packed forms in `buffer` (empty: none of them),
// gradients in `gradients` (u8, gradient_bytes(); empty where no W runs). The rope table is the
// caller's to add.
BlockWeights copied_weights(const Architecture& architecture, const WeightsOptions& options,
                            size_t node, const TensorView& buffer, const TensorView& gradients);

}  // namespace jige::model
