// Numbers into blocks, a thread each: the roundings of kernels/cpu/quant_format.h in its order, so
// that the bits are the CPU's.
#include "kernels/cpu/quant_format.h"
#include "kernels/cuda/quant_layout.cuh"

namespace jige::cuda {
namespace {

constexpr int kPackThreads = 128;
constexpr int kSampleBlocks = 64;  // of a row whose levels are chosen
constexpr int kCandidates = 8;

using Numbers = float[kQuantBlock];

// Constants of the formats, as arguments of kernels.
struct Tables {
  float divisors[kCandidates];
  float places[kCandidates];
  int uneven[kQuantLevels];
  int fp4[kQuantLevels];
  float scale_max;
  float least;  // extremes below make an uneven block zeros
};

Tables make_tables() {
  Tables tables = {};
  static_assert(sizeof cpu::kQ4Divisors == sizeof tables.divisors);
  static_assert(sizeof cpu::kUnevenPlaces == sizeof tables.places);
  for (int i = 0; i < kCandidates; ++i) {
    tables.divisors[i] = cpu::kQ4Divisors[i];
    tables.places[i] = cpu::kUnevenPlaces[i];
  }
  for (int i = 0; i < kQuantLevels; ++i) {
    tables.uneven[i] = cpu::kUnevenUnsigned[i] - 128;
    tables.fp4[i] = cpu::kFp4Unsigned[i] - cpu::kFp4Largest;
  }
  tables.scale_max = cpu::kQuantScaleMax;
  tables.least = 0x1p-112f;
  return tables;
}
static_assert(cpu::kQuantLeast == 0x07800000 && kQuantBlock == cpu::kQuantBlock);

// A scale in f16, and its numbers: integers, or of uneven levels and FP4 those of the levels.
struct Block {
  int values[kQuantBlock];
  uint16_t scale;
};

__device__ uint16_t scale_of(const Tables& tables, float wanted) {
  const float kept = fminf(fmaxf(wanted, -tables.scale_max), tables.scale_max);
  const uint16_t bits = float_to_half(kept);
  return half_to_float(bits) == 0.0f ? uint16_t{0} : bits;
}

__device__ float sum_of_chains(float (&chains)[8]) {
#pragma unroll
  for (int apart = 4; apart > 0; apart /= 2) {
    for (int j = 0; j < apart; ++j) chains[j] += chains[j + apart];
  }
  return chains[0];
}

__device__ float whole(float scaled, float least, float most) {
  return rintf(fminf(fmaxf(scaled, least), most));
}

// What integers times a scale leave of the squares.
__device__ float squares_left(const Numbers& x, uint16_t scale) {
  const float d = half_to_float(scale);
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  float chains[8] = {};
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) {
    const float rest = fmaf(-d, whole(x[i] * inverse, -8.0f, 7.0f), x[i]);
    chains[i % 8] = fmaf(rest, rest, chains[i % 8]);
  }
  return sum_of_chains(chains);
}

__device__ void integers_with(const Numbers& x, uint16_t scale, float least, float most,
                              Block* block) {
  const float d = half_to_float(scale);
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  block->scale = scale;
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) {
    block->values[i] = static_cast<int>(whole(x[i] * inverse, least, most));
  }
}

// Whether a given scale is the block's.
__device__ bool takes_scale(const Numbers& x, uint16_t given, float least, float most) {
  const float d = half_to_float(given);
  if (d == 0.0f) return false;
  const float inverse = 1.0f / d;
  bool takes = true;
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) {
    const float scaled = x[i] * inverse;
    takes = takes && scaled >= least - 0.5f && scaled <= most + 0.5f;
  }
  return takes;
}

// The number of the nearest uneven level, of two the upper.
__device__ int level_of(const Tables& tables, float number) {
  const int twice = 2 * static_cast<int>(whole(number, -128.0f, 127.0f));
  int level = 0;
#pragma unroll
  for (int i = 0; i + 1 < kQuantLevels; ++i) {
    level += twice >= tables.uneven[i] + tables.uneven[i + 1] ? 1 : 0;
  }
  return level;
}
__device__ int level_at(const int (&levels)[kQuantLevels], int level) {
  int value = levels[0];
#pragma unroll
  for (int i = 1; i < kQuantLevels; ++i) value = level == i ? levels[i] : value;
  return value;
}
__device__ int uneven_at(const Tables& tables, int level) { return level_at(tables.uneven, level); }

// What the extreme number is times, for the scale of its best place.
__device__ float uneven_scale(const Tables& tables, const Numbers& x, float extreme) {
  const float inverse = 1.0f / extreme;
  float most = 0.0f;
  float scale = 0.0f;
#pragma unroll 1
  for (int place = 0; place < kCandidates; ++place) {
    float chains[8] = {};
    float squares = 0.0f;  // whole numbers, exact
#pragma unroll
    for (int i = 0; i < kQuantBlock; ++i) {
      const float r = x[i] * inverse;
      const auto u =
          static_cast<float>(uneven_at(tables, level_of(tables, r * tables.places[place])));
      chains[i % 8] = fmaf(r, u, chains[i % 8]);
      squares += u * u;
    }
    const float sum = sum_of_chains(chains);
    const float gain = sum * sum / squares;
    if (place > 0 && !(gain > most)) continue;
    most = gain;
    scale = sum / squares;
  }
  return scale;
}

__device__ void uneven_block(const Tables& tables, const Numbers& x, float extreme, Block* block) {
  block->scale = 0;
  if (fabsf(extreme) >= tables.least) {
    block->scale = scale_of(tables, extreme * uneven_scale(tables, x, extreme));
  }
  const float inverse = block->scale == 0 ? 0.0f : 1.0f / half_to_float(block->scale);
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) block->values[i] = level_of(tables, x[i] * inverse);
}

__device__ void even_block(const Tables& tables, const Numbers& x, float extreme, Block* block) {
  uint16_t best = 0;
  float least = 0.0f;
#pragma unroll 1
  for (int i = 0; i < kCandidates; ++i) {
    const uint16_t scale = scale_of(tables, extreme / -tables.divisors[i]);
    const float squares = squares_left(x, scale);
    if (i > 0 && !(squares < least)) continue;
    best = scale;
    least = squares;
  }
  integers_with(x, best, -8.0f, 7.0f, block);
}

// The level of FP4's nearest number, in halves, of two the one of even bits.
__device__ int fp4_level(float number) {
  const float size = fminf(fabsf(number), static_cast<float>(cpu::kFp4Largest));
  const float step = size <= 4.0f ? 1.0f : size <= 8.0f ? 2.0f : 4.0f;  // of its numbers there
  const int steps = static_cast<int>(rintf(size / step));
  const int level = size <= 4.0f ? steps : size <= 8.0f ? steps + 2 : steps + 4;
  return number < 0.0f && level > 0 ? level + kQuantLevels / 2 : level;
}

// The power of two is that of the largest number, below normal ones none.
__device__ void fp4_block(const Tables& tables, const Numbers& x, float most, Block* block) {
  constexpr uint32_t kExponent = 0x7f800000u;
  constexpr uint32_t kEighth = 3u << 23;
  const uint32_t power = float_to_bits(most) & kExponent;
  block->scale = scale_of(tables, power > kEighth ? bits_to_float(power - kEighth) : 0.0f);
  const float inverse = block->scale == 0 ? 0.0f : 1.0f / half_to_float(block->scale);
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) block->values[i] = fp4_level(x[i] * inverse);
}

__device__ void make_block(const Tables& tables, QuantKind kind, const Numbers& x, uint16_t given,
                           Block* block) {
  float most = 0.0f;
  bool infinite = false;  // or NaN
  bool negative = false;  // whether the extreme number is
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) {
    infinite = infinite || (float_to_bits(x[i]) & 0x7fffffffu) >= cpu::kQuantInfinity;
    most = fmaxf(most, fabsf(x[i]));
  }
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) negative = negative || x[i] == -most;
  const float extreme = negative ? -most : most;
  if (infinite) {
    block->scale = cpu::kQuantScaleNan;
    for (int i = 0; i < kQuantBlock; ++i) {
      block->values[i] = kind == QuantKind::kUneven ? cpu::kUnevenOne : 0;
    }
  } else if (kind == QuantKind::kUneven) {
    uneven_block(tables, x, extreme, block);
  } else if (kind == QuantKind::kFp4) {
    fp4_block(tables, x, most, block);
  } else if (kind == QuantKind::kEven && !takes_scale(x, given, -8.0f, 7.0f)) {
    even_block(tables, x, extreme, block);
  } else if (kind == QuantKind::kEven) {
    integers_with(x, given, -8.0f, 7.0f, block);
  } else {
    const bool takes = takes_scale(x, given, -127.0f, 127.0f);
    integers_with(x, takes ? given : scale_of(tables, most / 127.0f), -127.0f, 127.0f, block);
  }
}

// A block of a row, zeros behind its end.
__device__ void load_block(const ConstRows& src, int64_t row, int64_t block, int64_t k,
                           Numbers& x) {
#pragma unroll
  for (int i = 0; i < kQuantBlock; ++i) {
    const int64_t column = block * kQuantBlock + i;
    x[i] = column < k ? load_element(src.data, src.type, row * src.stride + column) : 0.0f;
  }
}
__device__ uint16_t given_scale(const QuantiseRows& args, int64_t row, int64_t block) {
  return args.scales ? args.scales[row * args.scales_stride + block] : uint16_t{0};
}

__device__ void store_block(const QuantWeight& weight, int64_t row, int64_t block, QuantKind kind,
                            const Block& from) {
  unsigned char* const record = quant_record(weight, row / kQuantRecordRows, block / kQuantSteps);
  const int in_record = static_cast<int>(row % kQuantRecordRows);
  const int step = static_cast<int>(block % kQuantSteps);
  *reinterpret_cast<uint16_t*>(record + quant_scale_at(in_record, step)) = from.scale;
  const unsigned offset = kind == QuantKind::kEven ? 8 : 0;
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    auto* words =
        reinterpret_cast<uint32_t*>(record + quant_words_at(weight.halves, in_record, step, t));
    const int* values = from.values + t * 8;
    if (weight.halves) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) word |= (static_cast<unsigned>(values[i]) + offset) << (4 * i);
      words[0] = word;
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      constexpr int kPlaces[] = {0, 16, 8, 24};  // bytes 0 2 1 3
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) {
        word |= (static_cast<unsigned>(values[half * 4 + i]) & 0xffu) << kPlaces[i];
      }
      words[half] = word;
    }
  }
}

// What a block leaves of the squares, number by number; those without numbers nothing.
__device__ void store_rests(const Tables& tables, QuantKind kind, const Numbers& x, int count,
                            const Block& block, double* rests) {
  const float d = half_to_float(block.scale);
  for (int i = 0; i < kQuantBlock; ++i) {
    const int value =
        kind == QuantKind::kUneven ? uneven_at(tables, block.values[i]) : block.values[i];
    const double rest =
        static_cast<double>(x[i]) - static_cast<double>(d * static_cast<float>(value));
    const bool counts = i < count && block.scale != cpu::kQuantScaleNan;
    rests[i] = counts ? rest * rest : 0.0;
  }
}

// Counts the rows of a weight of four bits; where they are the first, gives it the levels of FP4 or
// chooses them by what either leaves of some blocks of the first one, added as cpu::quant_levels
// does.
__global__ void __launch_bounds__(2 * kSampleBlocks)
    choose_levels_kernel(QuantiseRows args, Tables tables) {
  begin_kernel();
  auto* const header = reinterpret_cast<QuantHeader*>(args.weight.data);
  auto* const rests = reinterpret_cast<double*>(dynamic_shared());  // [2][blocks][32]
  __shared__ double sums[2];
  const bool goes_on = header->magic == kQuantMagic && header->rows_missing >= args.rows;
  const int64_t k = args.weight.k;
  const int64_t blocks = (k + kQuantBlock - 1) / kQuantBlock;
  const int taken = static_cast<int>(min(blocks, int64_t{kSampleBlocks}));
  const int thread = static_cast<int>(threadIdx.x);
  const bool second = thread >= kSampleBlocks;  // uneven levels
  const int sample = thread % kSampleBlocks;
  const int64_t at = sample * blocks / taken;
  const bool compares = !goes_on && !args.fp4;
  if (compares && sample < taken) {
    const QuantKind kind = second ? QuantKind::kUneven : QuantKind::kEven;
    Numbers x;
    Block block;
    load_block(args.src, 0, at, k, x);
    make_block(tables, kind, x, given_scale(args, 0, at), &block);
    const auto count = static_cast<int>(min(k - at * kQuantBlock, int64_t{kQuantBlock}));
    store_rests(tables, kind, x, count, block,
                rests + (second ? taken + sample : sample) * kQuantBlock);
  }
  __syncthreads();
  if (compares && sample == 0) {
    double sum = 0.0;
    const double* const from = rests + (second ? taken * kQuantBlock : 0);
    for (int i = 0; i < taken * kQuantBlock; ++i) sum += from[i];
    sums[second ? 1 : 0] = sum;
  }
  __syncthreads();
  if (thread == 0) {
    if (!goes_on) {
      header->magic = kQuantMagic;
      header->kind = args.fp4             ? QuantKind::kFp4
                     : sums[1] <= sums[0] ? QuantKind::kUneven
                                          : QuantKind::kEven;
      header->rows_missing = args.weight.n;
    }
    header->rows_missing -= args.rows;
  }
  __syncthreads();
  if (goes_on || thread >= kQuantLevels) return;
  const int level = header->kind == QuantKind::kFp4      ? level_at(tables.fp4, thread)
                    : header->kind == QuantKind::kUneven ? uneven_at(tables, thread)
                                                         : thread - 8;
  header->levels[thread] = float_to_bf16(static_cast<float>(level));
}

__global__ void __launch_bounds__(kPackThreads)
    quantise_kernel(QuantiseRows args, Tables tables, int64_t rows, int64_t blocks) {
  begin_kernel();
  const int64_t index = int64_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const int64_t row = index / blocks;
  const int64_t at = index % blocks;
  if (row >= rows) return;
  QuantKind kind = QuantKind::kBytes;
  if (args.weight.halves) kind = reinterpret_cast<const QuantHeader*>(args.weight.data)->kind;
  Numbers x;
  Block block;
  const bool inside = row < args.rows && at * kQuantBlock < args.weight.k;
  load_block(args.src, inside ? row : 0, at, inside ? args.weight.k : 0, x);
  make_block(tables, kind, x, inside ? given_scale(args, row, at) : uint16_t{0}, &block);
  store_block(args.weight, args.row_begin + row, at, kind, block);
}

}  // namespace

void quantise_rows(const LaunchStream& stream, const QuantiseRows& args) {
  if (args.rows <= 0) return;
  const Tables tables = make_tables();
  if (args.weight.halves) {
    constexpr int64_t kShared = 2 * kSampleBlocks * kQuantBlock * int64_t{sizeof(double)};
    launch(stream, {1, 2 * kSampleBlocks, kShared}, choose_levels_kernel, args, tables);
  }
  int64_t rows = args.rows;
  const bool last = args.row_begin + rows == args.weight.n;
  if (last) rows += -args.weight.n & (kQuantRecordRows - 1);
  const int64_t blocks = quant_chunks(args.weight.k) * kQuantSteps;
  launch(stream, {blocks_for(rows * blocks, kPackThreads), kPackThreads}, quantise_kernel, args,
         tables, rows, blocks);
}

}  // namespace jige::cuda
