// Attention's products on the matrix tiles of AMX: even and odd depths of a step of 32 are two
// chains of fused multiply-adds from zero, which are added to each other and then to the sum.
// Included by attention_products.h. Threads: the configuration of the tiles belongs to the thread
// between construction and destruction of a TileUnit.
#pragma once

#include "kernels/cpu/tile_config.h"

namespace jige::cpu::JIGE_ISA_NS {

// Configures the tiles: sums and left of `rows` rows, right tiles in full.
class TileUnit {
 public:
  explicit TileUnit(int rows) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) config.set(tile, tile <= 4 ? rows : 16, kTileRowBytes);
    config.load();
  }
  ~TileUnit() { _tile_release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;
};

// Panels [panel, panel + kPanels) of a product. Tile numbers must be literals.
template <int kPanels>
inline void multiply_panels(const TileProduct& product, int panel) {
  // Tile loads do not tell the compiler what they read: everything must be in memory before.
  asm volatile("" ::: "memory");
  const char* left = static_cast<const char*>(product.left);
  const char* right = static_cast<const char*>(product.right) + panel * product.panel_bytes;
  float* sums = product.sums + panel * 16;
  const int64_t row = product.sums_stride * 4;
  if (product.accumulate) {
    _tile_loadd(0, sums, row);
    if constexpr (kPanels > 1) _tile_loadd(1, sums + 16, row);
    if constexpr (kPanels > 2) _tile_loadd(2, sums + 32, row);
    if constexpr (kPanels > 3) _tile_loadd(3, sums + 48, row);
  } else {
    _tile_zero(0);
    if constexpr (kPanels > 1) _tile_zero(1);
    if constexpr (kPanels > 2) _tile_zero(2);
    if constexpr (kPanels > 3) _tile_zero(3);
  }
  for (int step = 0; step < product.steps; ++step) {
    _tile_loadd(4, left, product.left_row_bytes);
    _tile_loadd(5, right, kTileRowBytes);
    if constexpr (kPanels > 1) _tile_loadd(6, right + product.panel_bytes, kTileRowBytes);
    if constexpr (kPanels > 2) _tile_loadd(7, right + 2 * product.panel_bytes, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kPanels > 3) _tile_loadd(5, right + 3 * product.panel_bytes, kTileRowBytes);
    if constexpr (kPanels > 1) _tile_dpbf16ps(1, 4, 6);
    if constexpr (kPanels > 2) _tile_dpbf16ps(2, 4, 7);
    if constexpr (kPanels > 3) _tile_dpbf16ps(3, 4, 5);
    left += product.left_step_bytes;
    right += kTileBytes;
  }
  _tile_stored(0, sums, row);
  if constexpr (kPanels > 1) _tile_stored(1, sums + 16, row);
  if constexpr (kPanels > 2) _tile_stored(2, sums + 32, row);
  if constexpr (kPanels > 3) _tile_stored(3, sums + 48, row);
}

}  // namespace jige::cpu::JIGE_ISA_NS
