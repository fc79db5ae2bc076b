// Where the parameters of a node stand in memory: which have values and gradients, and in what
// order they are placed into a buffer. Shared by what allocates them (weights.h) and what copies
// them (weights_copy.h).
//
// Threads: pure functions but for make_rope_tensor, which allocates.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/architecture.h"
#include "model/placement.h"
#include "model/weights.h"

namespace jige::model {

bool is_trained(const Architecture& architecture, const WeightsOptions& options,
                const ParamSpec& spec);

// Whether a parameter's value stands in the memory of its gradient
// (WeightsOptions::values_in_gradients).
bool stands_in_gradient(const Architecture& architecture, const WeightsOptions& options,
                        const ParamSpec& spec);

// Whether a node is a layer that has no memory of its own (WeightsOptions::streamed_layers).
bool is_streamed_node(const WeightsOptions& options, size_t node);

// Bytes of a slot that such layers share: of the largest of them. 0 without any.
int64_t slot_bytes(const Architecture& architecture, const WeightsOptions& options);

// How a node's matrices are packed: as the options say, but a head in 8 bits where layers have 4,
// since errors of logits are those of the answer.
ops::WeightFormat format_of(const Architecture& architecture, const WeightsOptions& options,
                            size_t node);

// Fails with kInvalidArgument where no matrix of the model is kept in a format: MXFP4 is for
// experts.
Status check_weight_format(const Architecture& architecture, ops::WeightFormat format);

// The bytes of its packed forms.
int64_t packed_bytes(const Architecture& architecture, const WeightsOptions& options, size_t node);

// Bytes of the strip that all nodes share; 0 where nothing is quantised, and where a CPU multiplies
// and nothing is trained.
int64_t strip_bytes(const Architecture& architecture, const WeightsOptions& options);

// A head's matrix that is the embedding's table.
bool is_tied(const Architecture& architecture, size_t node, size_t index);

// Values of one node: masters of what is trained, and of the rest only what tasks read. In the
// order of Block::params(), empty where there is none.
std::vector<TensorView> place_values(Placement& at, const Architecture& architecture,
                                     const WeightsOptions& options, size_t node);

// Gradients of one node, f32, empty where a parameter is frozen.
std::vector<TensorView> place_gradients(Placement& at, const Architecture& architecture,
                                        const WeightsOptions& options, size_t node);

// The rope table of a device in its arena, [position_count, rope columns] f32, and the bytes it
// takes there; no tensor and 0 bytes for a model without rotary positions or for no positions.
// Fails with kExhausted.
Result<Tensor> make_rope_tensor(Arena& arena, const Architecture& architecture,
                                int64_t position_count);
int64_t rope_tensor_bytes(const Architecture& architecture, int64_t position_count);

}  // namespace jige::model
