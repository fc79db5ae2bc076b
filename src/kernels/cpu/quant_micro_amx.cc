// Quantised products of many rows on AMX tiles: one instruction multiplies a block of sixteen rows,
// signed, by the block of sixteen columns, unsigned, and sums exactly. The sums go through memory
// to vectors, which scale and add them; tiles run a block ahead of that. Few rows, which would
// leave most of a tile empty, take the way of AVX512_VNNI; bits are the same.
#include <cstdint>

#include "kernels/cpu/quant_halves_avx512.h"
#include "kernels/cpu/quant_micro.h"
#include "kernels/cpu/tile_config.h"

namespace jige::cpu::vnni {
extern const QuantEngine kQuantVnni;
}

namespace jige::cpu::JIGE_ISA_NS {

extern const QuantEngine kQuantTiles;

namespace {

constexpr int kTileRows = 16;
constexpr int kRowsMin = 8;  // of a call that is worth tiles; that of AVX512_VNNI takes fewer
constexpr int kGroups = kQuantBlock / kQuantGroup;
constexpr int kLineBytes = kQuantHalf * kQuantGroup;  // a group of sixteen columns

// Tiles 0 and 1 hold sums and 2 and 3 rows, of even and odd blocks; 4 and 5 weights.
class QuantTiles {
 public:
  explicit QuantTiles(int rows) {
    TileConfig config;
    for (int odd = 0; odd < 2; ++odd) {
      config.set(odd, rows, kLineBytes);
      config.set(2 + odd, rows, kQuantBlock);
      config.set(4 + odd, kGroups, kLineBytes);
    }
    config.load();
  }
  ~QuantTiles() { _tile_release(); }
  QuantTiles(const QuantTiles&) = delete;
  QuantTiles& operator=(const QuantTiles&) = delete;
};

// A block's sums of sixteen rows and columns, and for weights in halves of bytes the whole ones.
struct alignas(64) QuantTileMemory {
  int32_t sums[2][kTileRows][kQuantHalf];
  uint8_t weights[2][kGroups][kLineBytes];
};

// Halves of bytes become bytes.
template <QuantFormat kFormat>
JIGE_INLINE void widen(const char* data, uint8_t (&weights)[kGroups][kLineBytes]) {
  const __m512i half = _mm512_set1_epi8(15);
  for (int line = 0; line < kGroups / 2; ++line) {
    const __m512i both = _mm512_loadu_si512(data + line * kQuantGroupBytes);
    const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(both, 4), half);
    _mm512_store_si512(weights[2 * line], weights_of<kFormat>(_mm512_and_si512(both, half)));
    _mm512_store_si512(weights[2 * line + 1], weights_of<kFormat>(upper));
  }
}

// Sums of one block, even or odd, into memory. The intrinsics take tile numbers as literals only.
template <QuantFormat kFormat, int kOdd>
JIGE_INLINE void multiply_block(const QuantBlock* left, const char* data, QuantTileMemory& memory) {
  const void* weights = data;
  int64_t weights_stride = kQuantGroupBytes;
  if constexpr (QuantTraits<kFormat>::kHalves) {
    widen<kFormat>(data, memory.weights[kOdd]);
    weights = memory.weights[kOdd];
    weights_stride = kLineBytes;
  }
  if constexpr (kOdd == 0) {
    _tile_zero(0);
    _tile_loadd(2, left->values, sizeof(QuantBlock));
    _tile_loadd(4, weights, weights_stride);
    _tile_dpbsud(0, 2, 4);
    _tile_stored(0, memory.sums[0], kLineBytes);
  } else {
    _tile_zero(1);
    _tile_loadd(3, left->values, sizeof(QuantBlock));
    _tile_loadd(5, weights, weights_stride);
    _tile_dpbsud(1, 3, 5);
    _tile_stored(1, memory.sums[1], kLineBytes);
  }
}

// The rows of a call times sixteen columns. Rows beyond the last are copies of it.
struct QuantTileRun {
  const QuantBlock* left;  // [blocks][rows]
  int rows;
  F32x16 acc[kTileRows];
};

JIGE_INLINE void add_block(QuantTileRun& run, int64_t block, const F16* scales,
                           const int32_t (&sums)[kTileRows][kQuantHalf]) {
  const F32x16 of_columns = F32x16::load(scales);
  const QuantBlock* rows = run.left + block * run.rows;
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    const QuantBlock& left = rows[r < run.rows ? r : run.rows - 1];
    const __m512i sum =
        _mm512_add_epi32(_mm512_load_si512(sums[r]), _mm512_set1_epi32(left.offset));
    run.acc[r] = fma(F32x16::broadcast(left.scale) * of_columns, F32x16{_mm512_cvtepi32_ps(sum)},
                     run.acc[r]);
  }
}

template <QuantFormat kFormat>
JIGE_FLATTEN void multiply_half(const QuantMicroArgs& args, int64_t column) {
  constexpr int64_t kBlockBytes = QuantTraits<kFormat>::kBlockBytes;
  const int64_t half = column % kQuantColumns / kQuantHalf;
  const char* panel =
      reinterpret_cast<const char*>(args.panels) + column / kQuantColumns * args.panel_bytes;
  const char* data = panel + kQuantScaleBytes + half * kLineBytes;
  const auto scales = [&](int64_t block) {
    return reinterpret_cast<const F16*>(panel + block * kBlockBytes) + half * kQuantHalf;
  };
  QuantTileRun run;
  run.left = args.left;
  run.rows = args.rows;
  for (int r = 0; r < kTileRows; ++r) {
    run.acc[r] = F32x16::zero();
  }
  QuantTileMemory memory;
  for (int odd = 0; odd < 2; ++odd) {
    for (int r = args.rows; r < kTileRows; ++r) {
      _mm512_store_si512(memory.sums[odd][r], _mm512_setzero_si512());
    }
  }
  if (args.blocks > 0) multiply_block<kFormat, 0>(args.left, data, memory);
  for (int64_t block = 0; block < args.blocks; block += 2) {
    if (block + 1 < args.blocks) {
      multiply_block<kFormat, 1>(args.left + (block + 1) * args.rows,
                                 data + (block + 1) * kBlockBytes, memory);
    }
    add_block(run, block, scales(block), memory.sums[0]);
    if (block + 1 >= args.blocks) break;
    if (block + 2 < args.blocks) {
      multiply_block<kFormat, 0>(args.left + (block + 2) * args.rows,
                                 data + (block + 2) * kBlockBytes, memory);
    }
    add_block(run, block + 1, scales(block + 1), memory.sums[1]);
  }
  const auto sum = [&](int r) { return run.acc[r]; };
  if (args.out_is_bf16) {
    quant_store_half<kTileRows>(args, column, args.rows, static_cast<Bf16*>(args.out), sum);
  } else {
    quant_store_half<kTileRows>(args, column, args.rows, static_cast<float*>(args.out), sum);
  }
}

template <QuantFormat kFormat>
void quant_tiles_micro(const QuantMicroArgs& args) {
  if (args.rows < kRowsMin) return vnni::kQuantVnni.micro[static_cast<size_t>(kFormat)](args);
  const QuantTiles tiles(args.rows);
  for (int64_t column = 0; column < args.columns; column += kQuantHalf) {
    multiply_half<kFormat>(args, column);
  }
}

}  // namespace

const QuantEngine kQuantTiles = {
    .name = "amx int8 tiles",
    .rows = kTileRows,
    .rows_max = kTileRows,
    .micro = {quant_tiles_micro<QuantFormat::kQ8>, quant_tiles_micro<QuantFormat::kQ4>,
              quant_tiles_micro<QuantFormat::kFp4>, quant_tiles_micro<QuantFormat::kUneven4>},
};

}  // namespace jige::cpu::JIGE_ISA_NS
