// Products of a block of bf16 rows and panels of columns, as the attention kernels in bf16 use
// them: on the matrix tiles of AMX, or in pairs of depths by the instruction of AVX512_BF16.
//
// Both read the same memory: a left block of up to 16 rows, of which 32 numbers of the depth are 64
// bytes, and right tiles [16 depth pairs][16 lanes][2]. A row of sums depends on its own row of the
// left only. Numbers below the normal range count as zeros. What a sum is, is stated in
// attention_products_amx.h and attention_products_pairs.h.
//
// For sources named *_tiles.cc. Threads: values, but for a TileUnit.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int kTileElements = 512;

// sums[rows][16·panels] = left · right, or += it.
struct TileProduct {
  const void* left = nullptr;
  int64_t left_row_bytes = kTileRowBytes;
  int64_t left_step_bytes = kTileBytes;  // from one 32 of the depth to the next
  const void* right = nullptr;           // tiles; those of a panel follow each other
  int64_t panel_bytes = 0;
  int steps = 0;
  int panels = 0;
  int rows = 16;  // at most those of the TileUnit; sums of others up to 16 are unspecified
  float* sums = nullptr;
  int64_t sums_stride = 0;  // floats
  bool accumulate = false;
};

}  // namespace jige::cpu::JIGE_ISA_NS

#ifdef __AMX_BF16__
#include "kernels/cpu/attention_products_amx.h"
#else
#include "kernels/cpu/attention_products_pairs.h"
#endif

namespace jige::cpu::JIGE_ISA_NS {

// Up to four panels from `panel` on.
inline void multiply_some(const TileProduct& product, int panel) {
  switch (product.panels - panel) {
    case 1:
      return multiply_panels<1>(product, panel);
    case 2:
      return multiply_panels<2>(product, panel);
    case 3:
      return multiply_panels<3>(product, panel);
    default:
      return multiply_panels<4>(product, panel);
  }
}

inline void multiply(const TileProduct& product) {
  for (int panel = 0; panel < product.panels; panel += 4) multiply_some(product, panel);
}

// Products that are put, a few panels at a time, between the instructions of other work: the tile
// unit runs beside the vector units, but a core looks only some hundred instructions ahead.
class TileQueue {
 public:
  // REQUIRES: at most two products, before any of them is run.
  void add(const TileProduct& product) {
    products_[count_++] = product;
    chunks_ += (product.panels + 3) / 4;
  }
  // Runs what is due when `part` of four parts of the other work are done.
  void run(int part) {
    for (; done_ < chunks_ * part / 4; ++done_) {
      multiply_some(products_[at_], panel_);
      panel_ += 4;
      if (panel_ < products_[at_].panels) continue;
      ++at_;
      panel_ = 0;
    }
  }

 private:
  TileProduct products_[2];
  int count_ = 0;
  int chunks_ = 0;
  int done_ = 0;
  int at_ = 0;
  int panel_ = 0;
};

}  // namespace jige::cpu::JIGE_ISA_NS
