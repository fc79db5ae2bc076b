// Attention for what the kernels on tensor cores do not take: a warp for each row and head, in f32.
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cuda/attention_flat.h"

namespace jige::cuda {

inline constexpr int32_t kPlainAttentionRows = 16;  // of a tile

void plain_attention_forward(const LaunchStream& stream, const FlatAttentionForward& args);
void plain_attention_backward(const LaunchStream& stream, const FlatAttentionBackward& args);

// Of every row and head, as [heads, rows]: lse · log2 e, and Σ dst · grad_dst behind all of those.
void attention_row_sums(const LaunchStream& stream, const FlatAttentionBackward& args);

}  // namespace jige::cuda
