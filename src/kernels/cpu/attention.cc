#include "kernels/cpu/attention.h"

#include <algorithm>

#include "base/cpu.h"
#include "kernels/cpu/attention_tiled_layout.h"
#include "kernels/cpu/gemm_choice.h"

namespace jige::cpu {

#define JIGE_DECLARE_ATTENTION(isa)                                                         \
  namespace isa {                                                                           \
  void attention_rows(const AttentionRows& args) noexcept;                                  \
  void attention_merge(const AttentionRows& args) noexcept;                                 \
  void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,        \
                                  int32_t row_count) noexcept;                              \
  void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept; \
  void attention_backward_sequence(const AttentionGradients& args) noexcept;                \
  }
JIGE_DECLARE_ATTENTION(avx2)
JIGE_DECLARE_ATTENTION(avx512)
JIGE_DECLARE_ATTENTION(amx)
#undef JIGE_DECLARE_ATTENTION

namespace {

bool wide() { return active_isa() >= Isa::kAvx512; }

bool on_tiles(const AttentionRows& args) {
  return attention_on_tiles(args.q.is_bf16 && args.keys.k.is_bf16 && args.keys.v.is_bf16,
                            args.scale);
}

bool on_tiles(const AttentionGradients& args) {
  return attention_on_tiles(
      args.q.is_bf16 && args.k.is_bf16 && args.v.is_bf16 && args.grad_dst.is_bf16, args.scale);
}

}  // namespace

// The product engine on tiles has proved that they work here.
bool attention_on_tiles(bool all_bf16, float scale) noexcept {
  return all_bf16 && scale > 0 && gemm_engine(DType::kBF16).layout == GemmLayout::kTileBF16 &&
         active_isa() == Isa::kAmx;
}

int64_t attention_scratch_bytes(int32_t head_dim) noexcept {
  return std::max(attention_forward_scratch(nullptr, head_dim, kAttentionRowsMax).bytes,
                  attention_tiled_scratch(nullptr, head_dim, kAttentionTiledRowsMax).bytes);
}

int64_t attention_partial_floats(int32_t row_count, int32_t head_dim) noexcept {
  return (2 + attention_row_floats(head_dim)) * row_count;
}

void attention_rows(const AttentionRows& args) noexcept {
  if (on_tiles(args)) return amx::attention_rows(args);
  wide() ? avx512::attention_rows(args) : avx2::attention_rows(args);
}

void attention_merge(const AttentionRows& args) noexcept {
  wide() ? avx512::attention_merge(args) : avx2::attention_merge(args);
}

int64_t attention_backward_scratch_bytes(int32_t head_dim) noexcept {
  return attention_sequence_scratch_bytes(head_dim, kAttentionTileKeys);
}

int64_t attention_sequence_scratch_bytes(int32_t head_dim, int32_t length) noexcept {
  return std::max(attention_backward_scratch(nullptr, head_dim, length).bytes,
                  attention_tiled_gradients(nullptr, head_dim, length).bytes);
}

void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,
                                int32_t row_count) noexcept {
  if (on_tiles(args)) return amx::attention_backward_queries(args, row_begin, row_count);
  wide() ? avx512::attention_backward_queries(args, row_begin, row_count)
         : avx2::attention_backward_queries(args, row_begin, row_count);
}

void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept {
  if (on_tiles(args)) return amx::attention_backward_keys(args, key_begin);
  wide() ? avx512::attention_backward_keys(args, key_begin)
         : avx2::attention_backward_keys(args, key_begin);
}

void attention_backward_sequence(const AttentionGradients& args) noexcept {
  if (on_tiles(args)) return amx::attention_backward_sequence(args);
  wide() ? avx512::attention_backward_sequence(args) : avx2::attention_backward_sequence(args);
}

}  // namespace jige::cpu
