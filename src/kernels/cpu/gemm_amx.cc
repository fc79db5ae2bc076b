// The tile engine on AMX.
//
// Two lane groups of the left times two panels of the right fill four tiles of sums; every tile
// loaded is used twice, so the loads (a tile in 8 cycles) hide behind the products (16 cycles).
// With at most one lane group, four panels take its place: as many sums, and four streams of the
// right. The configuration of the tiles belongs to the thread between begin and end. Threads: tiles
// are thread state; the caller brackets its calls with begin and end.
#include <cstdint>

#include "kernels/cpu/gemm_engine.h"
#include "kernels/cpu/tile_config.h"

namespace jige::cpu::bf16 {
void store_bf16(const GemmStoreBF16& store);  // gemm_store_bf16.cc
}  // namespace jige::cpu::bf16

namespace jige::cpu::amx {

extern const GemmEngine kGemmTile;
void pack_tiles(const GemmTileRun& run);  // gemm_pack_amx.cc

namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileRowBytes = 64;
// Tiles ahead of the products that a panel is fetched.
constexpr int64_t kPrefetchBytes = 4 * kTileBytes;

void begin() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, kTileLanes, kTileRowBytes);
  config.load();
}

void end() {
  _mm_sfence();  // what went past the caches
  _tile_release();
}

inline void prefetch_tile(const char* tile) {
  for (int64_t line = 0; line < kTileBytes; line += 64) {
    _mm_prefetch(tile + line, _MM_HINT_T0);
  }
}

// Where four tiles of sums lie, in elements from the first: two by two, or in a row.
struct Places {
  int64_t at[4];
};
inline Places square(int64_t stride) {
  return {{0, kTileLanes, kTileLanes * stride, kTileLanes * stride + kTileLanes}};
}
constexpr Places kInARow = {{0, kTileLanes, 2 * kTileLanes, 3 * kTileLanes}};

// Sums are in tiles 0 … 3, from `from` on, or zeros. The intrinsics take tile numbers as literals
// only.
inline void start_sums(const float* from, const Places& places, int64_t stride) {
  if (!from) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  _tile_loadd(0, from + places.at[0], stride * 4);
  _tile_loadd(1, from + places.at[1], stride * 4);
  _tile_loadd(2, from + places.at[2], stride * 4);
  _tile_loadd(3, from + places.at[3], stride * 4);
}

inline void store_sums(float* sums, const Places& places, int64_t stride) {
  _tile_stored(0, sums + places.at[0], stride * 4);
  _tile_stored(1, sums + places.at[1], stride * 4);
  _tile_stored(2, sums + places.at[2], stride * 4);
  _tile_stored(3, sums + places.at[3], stride * 4);
}

// Fetches the lines of some rows for writing, in equal shares beside the steps of a loop.
class LinesFetcher {
 public:
  LinesFetcher(const GemmLines& lines, int64_t step_count)
      : lines_(lines),
        end_(lines.at ? lines.at + lines.rows * lines.stride : nullptr),
        rows_per_step_(step_count > 0 ? (lines.rows + step_count - 1) / step_count : 0) {}

  void step() {
    for (int64_t row = 0; row < rows_per_step_ && lines_.at < end_; ++row) {
      for (int64_t line = 0; line < lines_.lines; ++line) {
        __builtin_prefetch(lines_.at + 64 * line, 1, 3);
      }
      lines_.at += lines_.stride;
    }
  }

 private:
  GemmLines lines_;
  const char* end_;
  int64_t rows_per_step_;
};

// Two lane groups times two panels. Meanwhile the share of the next two panels goes to the second
// level: without that, the first row block of a panel would wait for all of it. The left, which
// comes from the second level, is loaded with the hint that it is not used again soon, and all four
// loads of a step stand behind the products of the step before. It is not fetched ahead: the few
// lines that a core can wait for at a time are better spent on panels and output, which come from
// farther away (docs/decisions/0001-own-matrix-products.md). Output that is touched soon comes in
// as well.
void block_2x2(const GemmMicroArgs& args, const char* right, const float* from, float* sums) {
  start_sums(from, square(args.from_stride), args.from_stride);
  const char* left = static_cast<const char*>(args.left);
  const char* next = static_cast<const char*>(args.next);
  const int64_t steps = args.depth / kTileDepth;
  int64_t fetched = args.next_begin;
  const int64_t fetch_end = next ? args.next_end : fetched;
  const int64_t fetch_step = (fetch_end - fetched) / (steps > 0 ? steps : 1) + 64;
  LinesFetcher output(args.fetch, steps);
  const auto load = [&] {
    _tile_stream_loadd(4, left, args.left_row_bytes);
    _tile_loadd(6, right, kTileRowBytes);
    _tile_loadd(7, right + args.right_stride, kTileRowBytes);
    _tile_stream_loadd(5, left + args.left_stride, args.left_row_bytes);
    left += args.left_tile_bytes;
    right += kTileBytes;
  };
  const auto multiply = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    _tile_dpbf16ps(2, 5, 6);
  };
  const auto fetch = [&] {
    const int64_t stop = fetched + fetch_step < fetch_end ? fetched + fetch_step : fetch_end;
    for (; fetched < stop; fetched += 64) {
      _mm_prefetch(next + fetched, _MM_HINT_T1);
      _mm_prefetch(next + args.right_stride + fetched, _MM_HINT_T1);
    }
    output.step();
  };
  if (steps > 0) load();
  for (int64_t step = 1; step < steps; ++step) {
    multiply();
    load();
    fetch();
  }
  if (steps > 0) {
    multiply();
    fetch();
  }
  store_sums(sums, square(args.sums_stride), args.sums_stride);
}

// One lane group times four panels, for products bound by the reading of the right.
void block_1x4(const GemmMicroArgs& args, const char* right, const float* from, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  const int64_t stride = args.right_stride;
  start_sums(from, kInARow, args.from_stride);
  const char* left = static_cast<const char*>(args.left);
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes, left += args.left_tile_bytes) {
    for (int64_t panel = 0; panel < 4; ++panel) {
      prefetch_tile(right + panel * stride + k + kPrefetchBytes);
    }
    _tile_loadd(4, left, args.left_row_bytes);
    _tile_loadd(5, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, right + stride + k, kTileRowBytes);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, right + 2 * stride + k, kTileRowBytes);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, right + 3 * stride + k, kTileRowBytes);
    _tile_dpbf16ps(3, 4, 5);
  }
  store_sums(sums, kInARow, args.sums_stride);
}

// One lane group times one panel, for what is left over.
void block_1x1(const GemmMicroArgs& args, const char* left, const char* right, const float* from,
               float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  if (from) {
    _tile_loadd(0, from, args.from_stride * 4);
  } else {
    _tile_zero(0);
  }
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes, left += args.left_tile_bytes) {
    _tile_loadd(4, left, args.left_row_bytes);
    _tile_loadd(5, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
  }
  _tile_stored(0, sums, args.sums_stride * 4);
}

void micro(const GemmMicroArgs& args) {
  const char* left = static_cast<const char*>(args.left);
  const char* right = static_cast<const char*>(args.right);
  const bool two_groups = args.rows > kTileLanes;
  const int64_t step = two_groups ? 2 : 4;
  const auto from_at = [&](int64_t panel, int64_t row) {
    return args.from ? args.from + row * args.from_stride + panel * kTileLanes : nullptr;
  };
  int64_t panel = 0;
  for (; panel + step <= args.panels; panel += step) {
    const char* at = right + panel * args.right_stride;
    float* sums = args.sums + panel * kTileLanes;
    two_groups ? block_2x2(args, at, from_at(panel, 0), sums)
               : block_1x4(args, at, from_at(panel, 0), sums);
  }
  for (; panel < args.panels; ++panel) {
    const char* at = right + panel * args.right_stride;
    float* sums = args.sums + panel * kTileLanes;
    block_1x1(args, left, at, from_at(panel, 0), sums);
    if (two_groups) {
      block_1x1(args, left + args.left_stride, at, from_at(panel, kTileLanes),
                sums + kTileLanes * args.sums_stride);
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
    .depth_block = 768,  // two panels of it take all 48 KiB of a first-level cache
    .products_per_cycle = 512,
    .task_rows = 256,      // a left block takes 256 KiB of a second-level cache of 2 MiB
    .task_columns = 1024,  // and the sums of bf16 results 1 MiB
    .panel_depth = 768,
    .panel_rows = 256,
    .begin = begin,
    .end = end,
    .micro = micro,
    .pack_tiles = pack_tiles,
    .store_bf16 = bf16::store_bf16,
};

}  // namespace jige::cpu::amx
