#include "kernels/cpu/attention.h"

#include "base/cpu.h"
#include "kernels/cpu/attention_layout.h"

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
#undef JIGE_DECLARE_ATTENTION

namespace {

bool wide() { return active_isa() >= Isa::kAvx512; }

}  // namespace

int64_t attention_scratch_bytes(int32_t head_dim) noexcept {
  return attention_forward_scratch(nullptr, head_dim).bytes;
}

int64_t attention_partial_floats(int32_t row_count, int32_t head_dim) noexcept {
  return (2 + attention_row_floats(head_dim)) * row_count;
}

void attention_rows(const AttentionRows& args) noexcept {
  wide() ? avx512::attention_rows(args) : avx2::attention_rows(args);
}

void attention_merge(const AttentionRows& args) noexcept {
  wide() ? avx512::attention_merge(args) : avx2::attention_merge(args);
}

int64_t attention_backward_scratch_bytes(int32_t head_dim) noexcept {
  return attention_backward_scratch(nullptr, head_dim, kAttentionTileKeys).bytes;
}

int64_t attention_sequence_scratch_bytes(int32_t head_dim, int32_t length) noexcept {
  return attention_backward_scratch(nullptr, head_dim, length).bytes;
}

void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,
                                int32_t row_count) noexcept {
  wide() ? avx512::attention_backward_queries(args, row_begin, row_count)
         : avx2::attention_backward_queries(args, row_begin, row_count);
}

void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept {
  wide() ? avx512::attention_backward_keys(args, key_begin)
         : avx2::attention_backward_keys(args, key_begin);
}

void attention_backward_sequence(const AttentionGradients& args) noexcept {
  wide() ? avx512::attention_backward_sequence(args) : avx2::attention_backward_sequence(args);
}

}  // namespace jige::cpu
