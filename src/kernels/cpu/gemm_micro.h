// The micro-kernels of the chain and pair engines, written once for any vector of simd.h and any
// Panel, which says how a step of the depth is read and added, how many panels run at once at most,
// and how far ahead of the arithmetic a panel is fetched: several lines of each stream in flight
// hide the latency of memory when there are too few rows for the arithmetic to do so; 0 leaves it
// to the processor. A call may ask for another distance. Where nothing is asked for, a Panel may
// have several steps written out one behind the other.
//
// A block of Rows x (Panels · 2 vectors) sums stays in registers while the depth runs: per step
// one load of the right per vector and one broadcast of the left per row. Every sum is one chain of
// fused multiply-adds, so the shape of the block cannot change a bit; it is chosen so that at least
// eight chains run at once (latency 4, two units) and all sums fit in registers.
// Threads: no state.
#pragma once

#include <cstring>

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
  using Left = float;
  using Right = Vector;
  static constexpr int kStepDepth = 1;
  static constexpr int kStepBytes = 2 * Vector::kLanes * 4;
  static constexpr int kPanelsMax = 4;
  static constexpr bool kLeftInRows = true;
  static constexpr int steps_written_out(int) { return 1; }
  // One row with short vectors asks for so much that the processor's own fetching does better
  // (measured on Zen 4, docs/decisions/0001).
  static constexpr int prefetch_bytes(int rows) {
    return Vector::kLanes == 16 ? 512 : rows == 1 ? 0 : 384;
  }
  static JIGE_INLINE Vector broadcast(float left) { return Vector::broadcast(left); }
  static JIGE_INLINE Vector multiply_add(Vector left, Vector right, Vector sum) {
    return fma(left, right, sum);
  }
  static JIGE_INLINE void load(const char* row, Vector& first, Vector& second) {
    const float* values = reinterpret_cast<const float*>(row);
    first = Vector::load(values);
    second = Vector::load(values + Vector::kLanes);
  }
};

template <typename Vector>
struct PanelBF16 : PanelF32<Vector> {
  static constexpr bool kLeftInRows = false;
  static constexpr int kStepBytes = 2 * Vector::kLanes * 2;
  static constexpr int prefetch_bytes(int) { return Vector::kLanes == 16 ? 512 : 384; }
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

// A block of the left as it is packed: the rows of a step side by side.
template <typename Panel, int Rows>
struct PackedLeft {
  explicit PackedLeft(const GemmMicroArgs& args)
      : at(static_cast<const typename Panel::Left*>(args.left)) {}
  JIGE_INLINE typename Panel::Left row(int i) const { return at[i]; }
  JIGE_INLINE void step() { at += Rows; }

  const typename Panel::Left* at;
};

// Rows of the left where they lie in memory: of every three rows the address of the first one.
template <typename Panel, int Rows>
struct LeftRows {
  explicit LeftRows(const GemmMicroArgs& args) : stride(args.left_row_bytes) {
    for (int i = 0; i < kStarts; ++i) {
      at[i] = static_cast<const char*>(args.left) + 3 * i * args.left_row_bytes;
    }
  }
  JIGE_INLINE typename Panel::Left row(int i) const {
    typename Panel::Left value;
    std::memcpy(&value, at[i / 3] + i % 3 * stride, sizeof(value));
    return value;
  }
  JIGE_INLINE void step() {
#pragma GCC unroll 8
    for (int i = 0; i < kStarts; ++i) at[i] += sizeof(typename Panel::Left);
  }

  static constexpr int kStarts = (Rows + 2) / 3;
  const char* at[kStarts];
  int64_t stride;
};

template <typename Vector, typename Panel, typename Left, int Rows, int Panels>
void chain_block(const GemmMicroArgs& args, const char* right, const float* from, float* sums) {
  constexpr int kLanes = Vector::kLanes;
  constexpr int kVectors = 2 * Panels;
  const int64_t ahead = args.ahead > 0 ? args.ahead : Panel::prefetch_bytes(Rows);
  Vector chains[Rows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      chains[row][i] =
          from ? Vector::load(from + row * args.from_stride + i * kLanes) : Vector::zero();
    }
  }
  Left left(args);
  const int64_t stride = args.right_stride;
  const auto run_step = [&](bool fetches) __attribute__((always_inline)) {
    typename Panel::Right panel[kVectors];
#pragma GCC unroll 16
    for (int p = 0; p < Panels; ++p) {
      Panel::load(right + p * stride, panel[2 * p], panel[2 * p + 1]);
      if (fetches) {
#pragma GCC unroll 2
        for (int line = 0; line < Panel::kStepBytes; line += 64) {
          _mm_prefetch(right + p * stride + ahead + line, _MM_HINT_T0);
        }
      }
    }
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      const auto value = Panel::broadcast(left.row(row));
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        chains[row][i] = Panel::multiply_add(value, panel[i], chains[row][i]);
      }
    }
    left.step();
    right += Panel::kStepBytes;
  };
  int64_t k = args.depth;
  constexpr int kSteps = Panel::steps_written_out(Rows);
  if constexpr (kSteps > 1) {
    for (; ahead == 0 && k >= kSteps * Panel::kStepDepth; k -= kSteps * Panel::kStepDepth) {
#pragma GCC unroll 16
      for (int i = 0; i < kSteps; ++i) run_step(false);
    }
  }
  for (; k > 0; k -= Panel::kStepDepth) run_step(ahead > 0);
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      chains[row][i].store(sums + row * args.sums_stride + i * kLanes);
    }
  }
}

// All panels of a call, as many at a time as the registers hold.
template <typename Vector, typename Panel, typename Left, int Rows, int Panels>
void chain_rows(const GemmMicroArgs& args) {
  const char* right = static_cast<const char*>(args.right);
  const float* from = args.from;
  float* sums = args.sums;
  int64_t panel = 0;
  for (; panel + Panels <= args.panels; panel += Panels) {
    chain_block<Vector, Panel, Left, Rows, Panels>(args, right, from, sums);
    right += Panels * args.right_stride;
    if (from) from += Panels * 2 * Vector::kLanes;
    sums += Panels * 2 * Vector::kLanes;
  }
  for (; panel < args.panels; ++panel) {
    chain_block<Vector, Panel, Left, Rows, 1>(args, right, from, sums);
    right += args.right_stride;
    if (from) from += 2 * Vector::kLanes;
    sums += 2 * Vector::kLanes;
  }
}

// Panels at a time for a number of rows: the most of 4, 2 and 1 whose sums fit beside two vectors
// of the right and a broadcast in `Registers` registers, `most` of them at most.
template <int Rows, int Registers>
constexpr int chain_panels(int most) {
  const int room = Registers - 4;
  return most >= 4 && 8 * Rows <= room ? 4 : most >= 2 && 4 * Rows <= room ? 2 : 1;
}

// The micro-kernel of an engine with MaxRows rows to a block.
template <typename Vector, typename Panel, int MaxRows, int Registers, int Rows = MaxRows>
void chain_micro(const GemmMicroArgs& args) {
  if (args.rows == Rows) {
    fetch_lines(args.fetch);
    constexpr int kPanels = chain_panels<Rows, Registers>(Panel::kPanelsMax);
    if constexpr (Panel::kLeftInRows) {
      if (args.left_in_rows) {
        return chain_rows<Vector, Panel, LeftRows<Panel, Rows>, Rows, kPanels>(args);
      }
    }
    chain_rows<Vector, Panel, PackedLeft<Panel, Rows>, Rows, kPanels>(args);
  } else if constexpr (Rows > 1) {
    chain_micro<Vector, Panel, MaxRows, Registers, Rows - 1>(args);
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
