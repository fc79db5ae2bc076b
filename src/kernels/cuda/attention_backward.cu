#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/attention_plain.h"

namespace jige::cuda {
namespace {

bool backward_on_tensor_cores(const FlatAttentionBackward& args) {
  const auto fits = [](const Rows& rows) {
    return flash_aligned(rows.data, rows.type, rows.stride);
  };
  return flash_takes(args.attention) && flat_bf16(args.grad_dst) && fits(args.grad_q) &&
         fits(args.grad_k) && fits(args.grad_v);
}

}  // namespace

AttentionBackwardRows attention_backward_rows(const LaunchStream& stream,
                                              const FlatAttentionBackward& args) {
  if (!backward_on_tensor_cores(args)) return {kPlainAttentionRows, kPlainAttentionRows};
  const int32_t queries = flash_queries(stream, args.attention, args.rows);
  return {queries, flash_keys(args.attention.head_dim, queries == kSmallTile)};
}

void attention_backward(const LaunchStream& stream, const FlatAttentionBackward& args) {
  attention_row_sums(stream, args);
  if (!backward_on_tensor_cores(args)) return plain_attention_backward(stream, args);
  const BackwardArgs backward{args, scores_of(args.attention)};
  flash_gradients_of_keys(stream, backward);
  flash_gradients_of_queries(stream, backward);
}

}  // namespace jige::cuda
