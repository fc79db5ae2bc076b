// The micro-kernels of the chain engines, written once for any vector of simd.h.
//
// A block of Rows x (Panels · 2 vectors) sums stays in registers while the depth runs: per depth
// one load of the right per vector and one broadcast of the left per row. Every sum is one chain of
// fused multiply-adds, so the shape of the block cannot change a bit; it is chosen so that at least
// eight chains run at once (latency 4, two units) and all sums fit in registers.
// Threads: no state.
#pragma once

#include <type_traits>

#include "kernels/cpu/gemm_engine.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// A bf16 is the upper half of an f32: shifting up the low halves of 32-bit words and masking off
// the low halves unpacks a vector of words into two vectors, two cheap instructions beside the fma.
#if defined(JIGE_ISA_avx512)
JIGE_INLINE void split_words(const char* words, F32& first, F32& second) {
  const __m512i pairs = _mm512_loadu_si512(words);
  first.v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  second.v = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}
#else
JIGE_INLINE void split_words(const char* words, F32& first, F32& second) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  first.v = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  second.v = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
}
JIGE_INLINE void split_words(const char* words, F32x16& first, F32x16& second) {
  split_words(words, first.low, second.low);
  split_words(words + 32, first.high, second.high);
}
#endif

// The halves of an unpacked panel row: the first is lanes [0, L), the second lanes [L, 2L).
template <typename Vector>
struct PanelF32 {
  static constexpr int kRowBytes = 2 * Vector::kLanes * 4;
  static JIGE_INLINE void load(const char* row, Vector& first, Vector& second) {
    const float* values = reinterpret_cast<const float*>(row);
    first = Vector::load(values);
    second = Vector::load(values + Vector::kLanes);
  }
};

template <typename Vector>
struct PanelBF16 {
  static constexpr int kRowBytes = 2 * Vector::kLanes * 2;
  static JIGE_INLINE void load(const char* row, Vector& first, Vector& second) {
    split_words(row, first, second);
  }
};

JIGE_INLINE void fetch_lines(const GemmLines& lines) {
  for (int64_t row = 0; row < lines.rows; ++row) {
    const char* at = lines.at + row * lines.stride;
    for (int64_t line = 0; line < lines.lines; ++line) _mm_prefetch(at + line * 64, _MM_HINT_T0);
  }
}

// How far ahead of the arithmetic a panel is fetched: several lines of each stream in flight hide
// the latency of memory when there are too few rows for the arithmetic to do so. One row of f32
// with short vectors asks for so much that the processor's own fetching does better (measured on
// Zen 4, docs/decisions/0001); 0 leaves it alone.
template <typename Vector, typename Panel, int Rows>
constexpr int prefetch_bytes() {
  if (Vector::kLanes == 16) return 512;
  return Rows == 1 && std::is_same_v<Panel, PanelF32<Vector>> ? 0 : 384;
}

template <typename Vector, typename Panel, int Rows, int Panels>
void chain_block(const GemmMicroArgs& args, const char* right, const float* from, float* sums) {
  constexpr int kLanes = Vector::kLanes;
  constexpr int kVectors = 2 * Panels;
  constexpr int kAhead = prefetch_bytes<Vector, Panel, Rows>();
  Vector chains[Rows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      chains[row][i] =
          from ? Vector::load(from + row * args.from_stride + i * kLanes) : Vector::zero();
    }
  }
  const float* left = static_cast<const float*>(args.left);
  const int64_t stride = args.right_stride;
  for (int64_t k = args.depth; k > 0; --k) {
    Vector panel[kVectors];
#pragma GCC unroll 16
    for (int p = 0; p < Panels; ++p) {
      Panel::load(right + p * stride, panel[2 * p], panel[2 * p + 1]);
      if constexpr (kAhead > 0) _mm_prefetch(right + p * stride + kAhead, _MM_HINT_T0);
    }
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      const Vector value = Vector::broadcast(left[row]);
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) chains[row][i] = fma(value, panel[i], chains[row][i]);
    }
    left += Rows;
    right += Panel::kRowBytes;
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      chains[row][i].store(sums + row * args.sums_stride + i * kLanes);
    }
  }
}

// All panels of a call, as many at a time as the registers hold.
template <typename Vector, typename Panel, int Rows, int Panels>
void chain_rows(const GemmMicroArgs& args) {
  const char* right = static_cast<const char*>(args.right);
  const float* from = args.from;
  float* sums = args.sums;
  int64_t panel = 0;
  for (; panel + Panels <= args.panels; panel += Panels) {
    chain_block<Vector, Panel, Rows, Panels>(args, right, from, sums);
    right += Panels * args.right_stride;
    if (from) from += Panels * 2 * Vector::kLanes;
    sums += Panels * 2 * Vector::kLanes;
  }
  for (; panel < args.panels; ++panel) {
    chain_block<Vector, Panel, Rows, 1>(args, right, from, sums);
    right += args.right_stride;
    if (from) from += 2 * Vector::kLanes;
    sums += 2 * Vector::kLanes;
  }
}

// Panels at a time for a number of rows: the most of 4, 2 and 1 whose sums fit beside two vectors
// of the right and a broadcast in `Registers` registers.
template <int Rows, int Registers>
constexpr int chain_panels() {
  const int room = Registers - 4;
  return 8 * Rows <= room ? 4 : 4 * Rows <= room ? 2 : 1;
}

// The micro-kernel of a chain engine with MaxRows rows to a block.
template <typename Vector, typename Panel, int MaxRows, int Registers, int Rows = MaxRows>
void chain_micro(const GemmMicroArgs& args) {
  if (args.rows == Rows) {
    fetch_lines(args.fetch);
    chain_rows<Vector, Panel, Rows, chain_panels<Rows, Registers>()>(args);
  } else if constexpr (Rows > 1) {
    chain_micro<Vector, Panel, MaxRows, Registers, Rows - 1>(args);
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
