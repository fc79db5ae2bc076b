// The tile engine on AMX.
//
// Two lane groups of the left times two panels of the right fill four tiles of sums; every tile
// loaded is used twice, so the loads (a tile in 8 cycles) hide behind the products (16 cycles). With
// at most one lane group, four panels take its place: as many sums, and four streams of the right.
// The configuration of the tiles belongs to the thread between begin and end.
// Threads: tiles are thread state; the caller brackets its calls with begin and end.
#include <cstdint>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/gemm_engine.h"

namespace jige::cpu::amx {

extern const GemmEngine kGemmTile;

namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileRowBytes = 64;
// Tiles ahead of the products that a panel is fetched.
constexpr int64_t kPrefetchBytes = 4 * kTileBytes;

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void begin() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = 16;
  }
  // The compiler believes that the intrinsic reads eight bytes only.
  asm volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}

void end() { _tile_release(); }

inline void prefetch_tile(const char* tile) {
  for (int64_t line = 0; line < kTileBytes; line += 64) {
    _mm_prefetch(tile + line, _MM_HINT_T0);
  }
}

// Sums in tiles 0 … 3. The intrinsics take tile numbers as literals only.
inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

struct SumsAt {
  float* at[4];
  int64_t row_bytes;
};

inline void load_sums(const SumsAt& sums) {
  _tile_loadd(0, sums.at[0], sums.row_bytes);
  _tile_loadd(1, sums.at[1], sums.row_bytes);
  _tile_loadd(2, sums.at[2], sums.row_bytes);
  _tile_loadd(3, sums.at[3], sums.row_bytes);
}

inline void store_sums(const SumsAt& sums) {
  _tile_stored(0, sums.at[0], sums.row_bytes);
  _tile_stored(1, sums.at[1], sums.row_bytes);
  _tile_stored(2, sums.at[2], sums.row_bytes);
  _tile_stored(3, sums.at[3], sums.row_bytes);
}

// Two lane groups times two panels.
void block_2x2(const GemmMicroArgs& args, const char* right, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  const SumsAt at = {{sums, sums + kTileLanes, sums + kTileLanes * args.sums_stride,
                      sums + kTileLanes * args.sums_stride + kTileLanes},
                     args.sums_stride * 4};
  args.from_zero ? zero_sums() : load_sums(at);
  const char* left = static_cast<const char*>(args.left);
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes) {
    _tile_loadd(4, left + k, kTileRowBytes);
    _tile_loadd(6, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + args.right_stride + k, kTileRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, left + depth_bytes + k, kTileRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  store_sums(at);
}

// One lane group times four panels, for products bound by the reading of the right.
void block_1x4(const GemmMicroArgs& args, const char* right, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  const int64_t stride = args.right_stride;
  const SumsAt at = {
      {sums, sums + kTileLanes, sums + 2 * kTileLanes, sums + 3 * kTileLanes},
      args.sums_stride * 4};
  args.from_zero ? zero_sums() : load_sums(at);
  const char* left = static_cast<const char*>(args.left);
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes) {
    for (int64_t panel = 0; panel < 4; ++panel) {
      prefetch_tile(right + panel * stride + k + kPrefetchBytes);
    }
    _tile_loadd(4, left + k, kTileRowBytes);
    _tile_loadd(5, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, right + stride + k, kTileRowBytes);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, right + 2 * stride + k, kTileRowBytes);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, right + 3 * stride + k, kTileRowBytes);
    _tile_dpbf16ps(3, 4, 5);
  }
  store_sums(at);
}

// One lane group times one panel, for what is left over.
void block_1x1(const GemmMicroArgs& args, const char* left, const char* right, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  if (args.from_zero) {
    _tile_zero(0);
  } else {
    _tile_loadd(0, sums, args.sums_stride * 4);
  }
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes) {
    _tile_loadd(4, left + k, kTileRowBytes);
    _tile_loadd(5, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
  }
  _tile_stored(0, sums, args.sums_stride * 4);
}

void micro(const GemmMicroArgs& args) {
  const char* left = static_cast<const char*>(args.left);
  const char* right = static_cast<const char*>(args.right);
  const int64_t group_bytes = args.depth / kTileDepth * kTileBytes;
  const bool two_groups = args.rows > kTileLanes;
  const int64_t step = two_groups ? 2 : 4;
  int64_t panel = 0;
  for (; panel + step <= args.panels; panel += step) {
    const char* from = right + panel * args.right_stride;
    float* sums = args.sums + panel * kTileLanes;
    two_groups ? block_2x2(args, from, sums) : block_1x4(args, from, sums);
  }
  for (; panel < args.panels; ++panel) {
    const char* from = right + panel * args.right_stride;
    float* sums = args.sums + panel * kTileLanes;
    block_1x1(args, left, from, sums);
    if (two_groups) {
      block_1x1(args, left + group_bytes, from, sums + kTileLanes * args.sums_stride);
    }
  }
}

}  // namespace

const GemmEngine kGemmTile = {
    .name = "amx bf16 tiles",
    .layout = GemmLayout::kTileBF16,
    .rows = 2 * kTileLanes,
    .columns = kTileLanes,
    .depth_step = kTileDepth,
    .panel_group = 2,
    .depth_block = 768,
    .begin = begin,
    .end = end,
    .micro = micro,
};

}  // namespace jige::cpu::amx
