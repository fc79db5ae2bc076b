// The pair engine on AVX512_BF16: one instruction multiplies and adds two depths of sixteen
// columns.
#include "kernels/cpu/gemm_micro.h"

namespace jige::cpu::JIGE_ISA_NS {

extern const GemmEngine kGemmPairs;
void store_bf16(const GemmStoreBF16& store);  // gemm_store_bf16.cc

namespace {

// Panel rows are words of two depths for each column. One stream at a time reads memory fastest,
// and up to four rows without asking for anything ahead (measured on Zen 4, docs/decisions/0001).
struct PanelPairs {
  using Left = int32_t;
  using Right = __m512bh;
  static constexpr int kStepDepth = 2;
  static constexpr int kStepBytes = 2 * F32::kLanes * 4;
  static constexpr int kPanelsMax = 1;
  static constexpr bool kLeftInRows = true;
  static constexpr int prefetch_bytes(int rows) { return rows <= 4 ? 0 : 512; }
  // One row does nothing but wait for memory. The fewer instructions a line takes, the further the
  // processor looks ahead, beyond the end of the page that it foresees by itself.
  static constexpr int steps_written_out(int rows) { return rows == 1 ? 8 : 1; }
  static JIGE_INLINE Right broadcast(int32_t left) {
    return reinterpret_cast<Right>(_mm512_set1_epi32(left));
  }
  static JIGE_INLINE F32 multiply_add(Right left, Right right, F32 sum) {
    return {_mm512_dpbf16_ps(sum.v, left, right)};
  }
  static JIGE_INLINE void load(const char* row, Right& first, Right& second) {
    first = reinterpret_cast<Right>(_mm512_loadu_si512(row));
    second = reinterpret_cast<Right>(_mm512_loadu_si512(row + 64));
  }
};

void end() {
  _mm_sfence();  // what went past the caches
}

constexpr int kRows = 12;  // 24 sums, 2 vectors of the right, 6 registers to spare
constexpr int kRegisters = 32;

}  // namespace

const GemmEngine kGemmPairs = {
    .name = "avx512_bf16 pairs",
    .layout = GemmLayout::kPairBF16,
    .rows = kRows,
    .columns = 2 * F32::kLanes,
    .depth_step = 2,
    .panel_group = 4,
    .depth_block = 512,
    .products_per_cycle = 32,
    .task_rows = 192,
    .task_columns = 512,
    .panel_depth = 2048,  // panels come from the second level, which is fast enough
    .panel_rows = 288,
    .begin = nullptr,
    .end = end,
    .micro = chain_micro<F32, PanelPairs, kRows, kRegisters>,
    .store_bf16 = store_bf16,
    .left_bytes = int64_t{512} << 10,
    .left_in_place_bytes = -1,
};

}  // namespace jige::cpu::JIGE_ISA_NS
