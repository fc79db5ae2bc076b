// The chain engines of one instruction set.
#include "kernels/cpu/gemm_micro.h"

namespace jige::cpu::JIGE_ISA_NS {

#if defined(JIGE_ISA_avx512)
constexpr int kRows = 12;  // 24 sums, 2 vectors of the right, 6 registers to spare
constexpr int kRegisters = 32;
#else
constexpr int kRows = 6;  // 12 sums, 2 vectors of the right, 2 registers to spare
constexpr int kRegisters = 16;
#endif
constexpr int kColumns = 2 * F32::kLanes;
constexpr int kDepthBlock = 256;  // a panel of it takes half of a first-level cache
constexpr int kTaskRows = 192;    // a left block takes 192 KiB of the second-level cache
constexpr int kTaskColumns = 512;
// Groups of panels of this depth take 128 to 512 KiB of a second-level cache.
constexpr int kPanelGroup = 4;
constexpr int kPanelDepthF32 = F32::kLanes == 16 ? 1024 : 512;
constexpr int kPanelDepthBF16 = 1024;
constexpr int kPanelRows = 288;

#define JIGE_TEXT_INNER(name) #name
#define JIGE_TEXT(name) JIGE_TEXT_INNER(name)

extern const GemmEngine kGemmChainF32;
extern const GemmEngine kGemmChainBF16;

const GemmEngine kGemmChainF32 = {
    .name = JIGE_TEXT(JIGE_ISA_NS) " f32 chains",
    .layout = GemmLayout::kChainF32,
    .rows = kRows,
    .columns = kColumns,
    .depth_step = 1,
    .panel_group = kPanelGroup,
    .depth_block = kDepthBlock,
    .products_per_cycle = 2 * F32::kLanes,
    .task_rows = kTaskRows,
    .task_columns = kTaskColumns,
    .panel_depth = kPanelDepthF32,
    .panel_rows = kPanelRows,
    .begin = nullptr,
    .end = nullptr,
    .micro = chain_micro<F32, PanelF32<F32>, kRows, kRegisters>,
    .left_in_place_bytes = -1,
};

const GemmEngine kGemmChainBF16 = {
    .name = JIGE_TEXT(JIGE_ISA_NS) " bf16 chains",
    .layout = GemmLayout::kChainBF16,
    .rows = kRows,
    .columns = kColumns,
    .depth_step = 1,
    .panel_group = kPanelGroup,
    .depth_block = kDepthBlock,
    .products_per_cycle = 2 * F32::kLanes,
    .task_rows = kTaskRows,
    .task_columns = kTaskColumns,
    .panel_depth = kPanelDepthBF16,
    .panel_rows = kPanelRows,
    .begin = nullptr,
    .end = nullptr,
    .micro = chain_micro<F32, PanelBF16<F32>, kRows, kRegisters>,
};

}  // namespace jige::cpu::JIGE_ISA_NS
