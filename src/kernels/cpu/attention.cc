#include "kernels/cpu/attention.h"

#include <algorithm>

#include "base/cpu.h"
#include "kernels/cpu/attention_distance_layout.h"
#include "kernels/cpu/attention_tiled_layout.h"
#include "kernels/cpu/gemm_choice.h"

namespace jige::cpu {

#define JIGE_DECLARE_ATTENTION(isa)                                                         \
  namespace isa {                                                                           \
  void attention_rows(const AttentionRows& args) noexcept;                                  \
  void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,        \
                                  int32_t row_count) noexcept;                              \
  void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept; \
  void attention_backward_sequence(const AttentionGradients& args) noexcept;                \
  }
JIGE_DECLARE_ATTENTION(avx2)
JIGE_DECLARE_ATTENTION(avx512)
JIGE_DECLARE_ATTENTION(bf16)
JIGE_DECLARE_ATTENTION(amx)
#undef JIGE_DECLARE_ATTENTION
#define JIGE_DECLARE_PLAIN_ATTENTION(isa)                                                  \
  namespace isa {                                                                          \
  void attention_merge(const AttentionRows& args) noexcept;                                \
  void attention_backward_ahead_queries(const AttentionGradients& args, int32_t row_begin, \
                                        int32_t row_count) noexcept;                       \
  void attention_backward_ahead_keys(const AttentionGradients& args, int32_t key_begin,    \
                                     int32_t key_count) noexcept;                          \
  }
JIGE_DECLARE_PLAIN_ATTENTION(avx2)
JIGE_DECLARE_PLAIN_ATTENTION(avx512)
#undef JIGE_DECLARE_PLAIN_ATTENTION

namespace {

struct Kernels {
  decltype(&avx2::attention_rows) rows;
  decltype(&avx2::attention_backward_queries) backward_queries;
  decltype(&avx2::attention_backward_keys) backward_keys;
  decltype(&avx2::attention_backward_sequence) backward_sequence;
};
#define JIGE_ATTENTION_OF(isa)                                                          \
  {                                                                                     \
    isa::attention_rows, isa::attention_backward_queries, isa::attention_backward_keys, \
        isa::attention_backward_sequence                                                \
  }
constexpr Kernels kAvx2 = JIGE_ATTENTION_OF(avx2);
constexpr Kernels kAvx512 = JIGE_ATTENTION_OF(avx512);
constexpr Kernels kPairs = JIGE_ATTENTION_OF(bf16);
constexpr Kernels kTiles = JIGE_ATTENTION_OF(amx);
#undef JIGE_ATTENTION_OF

bool wide() { return active_isa() >= Isa::kAvx512; }

const Kernels& kernels_of(AttentionProducts products) {
  switch (products) {
    case AttentionProducts::kPairs:
      return kPairs;
    case AttentionProducts::kTiles:
      return kTiles;
    case AttentionProducts::kChains:
      break;
  }
  return wide() ? kAvx512 : kAvx2;
}

const Kernels& kernels_of(const AttentionRows& args) {
  const AttentionKeys& keys = args.keys;
  const bool narrow_keys = keys.scales || (keys.k.is_bf16 && keys.v.is_bf16);
  return kernels_of(attention_products(args.q.is_bf16 && narrow_keys, args.scale));
}

const Kernels& kernels_of(const AttentionGradients& args) {
  return kernels_of(attention_products(
      args.q.is_bf16 && args.k.is_bf16 && args.v.is_bf16 && args.grad_dst.is_bf16, args.scale));
}

}  // namespace

// The engine of products in bf16 has proved that its instructions work here.
AttentionProducts attention_products(bool all_bf16, float scale) noexcept {
  if (!all_bf16 || !(scale > 0)) return AttentionProducts::kChains;
  switch (gemm_engine(DType::kBF16).layout) {
    case GemmLayout::kTileBF16:
      return AttentionProducts::kTiles;
    case GemmLayout::kPairBF16:
      return AttentionProducts::kPairs;
    default:
      return AttentionProducts::kChains;
  }
}

int64_t attention_scratch_bytes(int32_t head_dim) noexcept {
  return std::max(attention_forward_scratch(nullptr, head_dim, kAttentionRowsMax).bytes,
                  attention_tiled_scratch(nullptr, head_dim, kAttentionTiledRowsMax).bytes);
}

int64_t attention_distance_scratch_bytes(int32_t head_dim) noexcept {
  const int64_t depth = int64_t{attention_depth_steps(head_dim)} * 32;
  return std::max(
      attention_distance_scratch<float>(nullptr, attention_row_floats(head_dim), kAttentionRowsMax)
          .bytes,
      attention_distance_scratch<uint16_t>(nullptr, depth, kAttentionTiledRowsMax).bytes);
}

int64_t attention_partial_floats(int32_t row_count, int32_t head_dim) noexcept {
  return (2 + attention_row_floats(head_dim)) * row_count;
}

void attention_rows(const AttentionRows& args) noexcept { kernels_of(args).rows(args); }

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
  kernels_of(args).backward_queries(args, row_begin, row_count);
}

void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept {
  kernels_of(args).backward_keys(args, key_begin);
}

void attention_backward_sequence(const AttentionGradients& args) noexcept {
  kernels_of(args).backward_sequence(args);
}

void attention_backward_ahead_queries(const AttentionGradients& args, int32_t row_begin,
                                      int32_t row_count) noexcept {
  wide() ? avx512::attention_backward_ahead_queries(args, row_begin, row_count)
         : avx2::attention_backward_ahead_queries(args, row_begin, row_count);
}

void attention_backward_ahead_keys(const AttentionGradients& args, int32_t key_begin,
                                   int32_t key_count) noexcept {
  wide() ? avx512::attention_backward_ahead_keys(args, key_begin, key_count)
         : avx2::attention_backward_ahead_keys(args, key_begin, key_count);
}

}  // namespace jige::cpu
