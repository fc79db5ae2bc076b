// The configuration of the matrix tiles of AMX: rows and bytes of a row of each of the eight tiles.
//
//   TileConfig config;
//   config.set(0, 16, 64);
//   config.load();        // tiles are zeros then
//   ...                   // until _tile_release()
// For sources named *_amx.cc. Threads: tiles and their configuration belong to the thread.
#pragma once

#include <cstdint>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace jige::cpu::JIGE_ISA_NS {

// The operand of LDTILECFG.
class alignas(64) TileConfig {
 public:
  void set(int tile, int rows, int row_bytes) {
    rows_[tile] = static_cast<uint8_t>(rows);
    row_bytes_[tile] = static_cast<uint16_t>(row_bytes);
  }

  void load() const {
    // The compiler believes that the intrinsic reads eight bytes only.
    asm volatile("" ::"r"(this) : "memory");
    _tile_loadconfig(this);
  }

 private:
  uint8_t palette_ = 1;
  uint8_t start_row_ = 0;
  uint8_t reserved_[14] = {};
  uint16_t row_bytes_[16] = {};
  uint8_t rows_[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace jige::cpu::JIGE_ISA_NS
