// Matrix product engines: a micro-kernel and the layout of the operands it reads.
//
//   sums[m][n] += Σ_k left[m][k] · right[k][n]
//
// The two operands are packed lane by lane: a lane is a row of the left or a column of the right,
// and runs along the summed index, the depth.
//   chain engines  one fused multiply-add chain over ascending depth per sum. The left is in blocks
//                  of `rows` lanes, [depth][lanes of the block] f32; the right in panels of
//                  `columns` lanes, [depth][columns] f32, or for bf16 [depth][columns / 2] words,
//                  word i = lane i (low half) and lane i + columns / 2 (high half).
//   pair engines   the same, of bf16, with two depths to a step: the odd one is added first, then
//                  the even one (what VDPBF16PS does). A word holds both, the even one in its low
//                  half: left [pair of depths][lanes of the block], right [pair of depths][columns]
//                  words. Padding to whole pairs is zero.
//   tile engines   depth in steps of 32: even and odd chains of 16 started from zero, added to each
//                  other and then to the sum (what AMX does). bf16 tiles of 1 KiB: left
//                  [16 lanes][32 depth], right [16 depth pairs][16 lanes][2]; the tiles of one lane
//                  group follow each other along the depth. Padding is zero.
// A chain starts from zero or from the sums already there, so a product may be cut along the depth
// at multiples of a step without a change of bits.
// Pairs and tiles count f32 numbers below the normal range as zeros, as the instructions do.
// Threads: engines are constants; a micro-kernel runs on the calling thread.
#pragma once

#include <cstdint>

namespace jige::cpu {

inline constexpr int kTileLanes = 16;
inline constexpr int kTileDepth = 32;
inline constexpr int64_t kTileElements = kTileLanes * kTileDepth;

enum class GemmLayout { kChainF32, kChainBF16, kPairBF16, kTileBF16 };

// The first `lines` cache lines of each of some rows in memory. Null: nothing.
struct GemmLines {
  const char* at = nullptr;
  int64_t stride = 0;  // bytes
  int64_t rows = 0;
  int64_t lines = 0;
};

// One call of a micro-kernel: `rows` lanes of the left times `panels` panels of the right.
struct GemmMicroArgs {
  int64_t depth;            // summed indices, a multiple of the engine's depth_step
  int rows;                 // 1 … engine.rows
  int64_t panels;           // 1 …
  const void* left;         // one packed block, or of tiles the left where it lies in memory
  int64_t left_stride = 0;  // bytes from lane group to lane group; of tiles only
  // Of chains of f32 and of pairs: the left is not packed but rows in memory, `left_row_bytes`
  // apart.
  bool left_in_rows = false;
  // Bytes from row to row of a tile of the left, and from tile to tile along the depth.
  int64_t left_row_bytes = kTileDepth * 2;
  int64_t left_tile_bytes = kTileElements * 2;
  const void* right;     // the first panel, at the first depth of this call
  int64_t right_stride;  // bytes from panel to panel
  // Where the chains start: null for zero, or [rows][panels · columns], may be `sums`.
  const float* from;
  int64_t from_stride;  // elements from row to row
  float* sums;          // where they end: [rows, rounded up to 16 for tiles][panels · columns]
  int64_t sums_stride;
  // What the next calls will read of the right: [next_begin, next_end) bytes from `next` in each of
  // the following panels, to be fetched meanwhile. Null: nothing.
  const void* next = nullptr;
  int64_t next_begin = 0;
  int64_t next_end = 0;
  // Bytes ahead of the arithmetic that chains and pairs ask for panels; 0: each in its own way.
  int64_t ahead = 0;
  GemmLines fetch;  // output that is written or read soon, to be fetched for writing
};

// Sixteen lanes of an operand in memory to be packed as tiles, without a remainder.
struct GemmTileRun {
  const void* src;     // f32 or bf16
  int element_bytes;   // 4 or 2
  int64_t row_stride;  // elements between memory rows
  bool depth_across;   // a memory row is a depth instead of a lane
  bool left;
  int64_t tile_count;  // along the depth
  void* dst;
  // Of the right from bf16 depths: the tiles of the next sixteen lanes, which lie in the same cache
  // lines of memory; null: sixteen lanes only.
  void* dst_next = nullptr;
  // Whether tiles of f32 elements go past the caches. REQUIRES: dst is aligned to 64 bytes, and a
  // fence of stores comes before others read.
  bool past_caches = false;
};

// Finished sums to be written as bf16: out = sums + bias, rounded to nearest, ties to even.
// REQUIRES: sums are those of the engine's micro-kernel.
struct GemmStoreBF16 {
  const float* sums;
  int64_t sums_stride;
  const float* bias;  // null: none
  uint16_t* out;
  int64_t out_stride;
  int64_t rows;
  int64_t columns;  // a multiple of 16
  // Whether whole lines go past the caches, for outputs that no cache would keep: they are not
  // fetched before they are overwritten. REQUIRES: out and its rows are aligned to 64 bytes, and
  // GemmEngine::end runs before others read.
  bool past_caches = false;
};

struct GemmEngine {
  const char* name;
  GemmLayout layout;
  int rows;             // lanes of a left block
  int columns;          // lanes of a right panel
  int depth_step;       // 1 for chains, 2 for pairs, 32 for tiles
  int panel_group;      // panels that one call should get when there are many rows
  int64_t depth_block;  // depth after which the next block of operands is packed
  // Multiplications that a core does in a cycle, to weigh packing against them.
  double products_per_cycle;
  // Rows of the left packed at a time, and columns that they are packed for.
  int64_t task_rows;
  int64_t task_columns;
  // The same where many rows run against packed panels (gemm_many_rows.h): depth of a call, and
  // rows of a task.
  int64_t panel_depth;
  int64_t panel_rows;
  // Run on a thread before its first and after its last micro-kernel call of a product; may be
  // null.
  void (*begin)();
  void (*end)();
  void (*micro)(const GemmMicroArgs& args);
  // A faster way to pack tiles; null for the general one.
  void (*pack_tiles)(const GemmTileRun& run) = nullptr;
  // A faster way to write bf16 results; null for the general one, whose bits it gives.
  void (*store_bf16)(const GemmStoreBF16& store) = nullptr;
  // Bytes of the left that gemm_many_rows.h packs at a time: half of a second-level cache.
  int64_t left_bytes = int64_t{1} << 20;
  // Tiles: a left of bf16 rows in whole lines is read where it lies, unpacked, while the bytes of a
  // row times the columns of the product are at most this: packed, it is read faster, by every
  // panel. Negative, of chains of f32 and of pairs: always, wherever its lines are.
  int64_t left_in_place_bytes = int64_t{1} << 20;
  // Outputs from this size on go past the caches where that is wanted; smaller ones stay in a
  // second-level cache.
  int64_t past_caches_bytes = int64_t{4} << 20;
  // The same for packed weights, which are read after the weights of all other layers.
  int64_t panels_past_caches_bytes = int64_t{1} << 20;
};

// Whether the operands are bf16 on both sides, and numbers below the normal range zeros.
inline bool gemm_flushes(const GemmEngine& engine) {
  return engine.layout == GemmLayout::kPairBF16 || engine.layout == GemmLayout::kTileBF16;
}

inline int64_t gemm_divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
inline int64_t gemm_round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// Depth with the engine's padding.
inline int64_t gemm_padded_depth(const GemmEngine& engine, int64_t depth) {
  return gemm_round_up(depth, engine.depth_step);
}

// Bytes of one packed right panel of `depth` summed indices.
inline int64_t gemm_panel_bytes(const GemmEngine& engine, int64_t depth) {
  const int64_t element_bytes = engine.layout == GemmLayout::kChainF32 ? 4 : 2;
  return gemm_padded_depth(engine, depth) * engine.columns * element_bytes;
}

// Bytes of a packed left block of `depth` summed indices and `rows` lanes.
inline int64_t gemm_left_block_bytes(const GemmEngine& engine, int64_t depth, int64_t rows) {
  const int64_t element_bytes = gemm_flushes(engine) ? 2 : 4;
  return gemm_padded_depth(engine, depth) * rows * element_bytes;
}

}  // namespace jige::cpu
