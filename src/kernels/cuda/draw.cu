// Logits are penalised in place; then the likeliest is found (likeliest.cu), and two kernels
// sample. Blocks take parts of a row: exponentials of the logits, their sum as the CPU adds it up,
// and where there are filters the sums by exponent of the weights, in whole numbers. Then a block
// for each row finds the exponent in which a filter ends, brings the weights from there on together
// in shared memory (in the flattest rows they are too many: then every pass computes them anew),
// and chooses among them.
#include "kernels/cuda/draw.h"

#include <cfloat>

#include "kernels/cpu/logits.h"
#include "kernels/cuda/draw_select.cuh"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kDrawPartThreads = 256;
constexpr int kDrawPart = static_cast<int>(cpu::kLogitsBlock);
constexpr int kPiece = static_cast<int>(cpu::kDrawPiece);
constexpr int kPieces = kDrawPart / kPiece;
constexpr int kListed = 8192;  // weights in shared memory

__device__ inline bool takes_top_k(const DrawRow& draw, int64_t columns) {
  return draw.top_k > 0 && draw.top_k < columns;
}
__device__ inline bool is_filtered(const DrawRow& draw, int64_t columns) {
  return takes_top_k(draw, columns) || draw.top_p < 1 || draw.min_weight > 0;
}

// Of a row's positive weights by exponent; masses in units of unit_of() it.
struct ExponentSums {
  unsigned long long masses[kExponents];
  uint32_t counts[kExponents];
};

// The same of a block's part, where masses are in two halves: lower 12 bits and the rest.
struct PartExponentSums {
  uint32_t counts[kExponents], low[kExponents], high[kExponents];
};
constexpr int kHalfBits = 12;

// A thread's neighbouring weights of one exponent, which are many where a row is flat.
struct WeightRun {
  int exponent = -1;
  uint32_t count = 0, low = 0, high = 0;

  __device__ void add(PartExponentSums& sums, uint32_t weight) {
    if (weight == 0) return;
    if (exponent_of(weight) != exponent) {
      flush(sums);
      exponent = exponent_of(weight);
    }
    const uint32_t mantissa = mantissa_of(weight);
    ++count;
    low += mantissa & ((1u << kHalfBits) - 1);
    high += mantissa >> kHalfBits;
  }
  __device__ void flush(PartExponentSums& sums) {
    if (exponent < 0) return;
    atomicAdd(&sums.counts[exponent], count);
    atomicAdd(&sums.low[exponent], low);
    atomicAdd(&sums.high[exponent], high);
    count = low = high = 0;
  }
};

// What draw_bytes() hold: a sum for each row and part, with the row's factor; then without.
__device__ inline float* part_sums(const Draw& a, int parts, int64_t row, bool raw) {
  return static_cast<float*>(a.scratch) + ((raw ? a.rows : 0) + row) * parts;
}

// Puts the exponentials of a part's logits into shared memory; adds their sums by exponent to
// `sums`, if they are given.
template <int W>
__device__ void find_weights(const Draw& a, int64_t begin, int count, float largest, float factor,
                             float* weights, PartExponentSums* sums) {
  const ConstRows logits = {a.logits, ElementType::kF32, a.stride};
  WeightRun run;
  for (int i = static_cast<int>(threadIdx.x) * W; i < count; i += kDrawPartThreads * W) {
    float x[W];
    load_packed<W>(logits, blockIdx.y, begin + i).unpack(ElementType::kF32, x);
    for (int j = 0; j < W; ++j) {
      weights[i + j] = exact_exp((x[j] - largest) * factor);
      if (sums) run.add(*sums, float_to_bits(weights[i + j]));
    }
  }
  if (sums) run.flush(*sums);
  __syncthreads();
}

// Blocks (part, row).
template <int W>
__global__ void __launch_bounds__(kDrawPartThreads) draw_parts_kernel(Draw a) {
  begin_kernel();
  __shared__ float weights[kDrawPart];
  __shared__ PartExponentSums sums;
  const int64_t row = blockIdx.y;
  const DrawRow draw = load_table(a.draws + row);
  const int32_t likeliest = a.tokens[row];
  const bool samples = draw.kind == DrawRow::kSample;
  if (likeliest < 0 || !(samples || draw.is_scored)) return;
  const bool filtered = samples && is_filtered(draw, a.columns);
  const float largest = a.logits[row * a.stride + likeliest];
  const int64_t begin = int64_t{blockIdx.x} * kDrawPart;
  const auto count = static_cast<int>(min(int64_t{kDrawPart}, a.columns - begin));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kExponents) sums.counts[thread] = sums.low[thread] = sums.high[thread] = 0;
  __syncthreads();
  for (int raw = samples ? 0 : 1; raw < 1 + draw.is_scored; ++raw) {
    find_weights<W>(a, begin, count, largest, raw ? 1.0f : draw.factor, weights,
                    filtered && !raw ? &sums : nullptr);
    if (warp_id() == 0) {
      const float sum = row_sum(count, [&](int i) { return weights[i]; });
      const auto parts = static_cast<int>(gridDim.x);
      if (lane_id() == 0) part_sums(a, parts, row, raw)[blockIdx.x] = sum;
    }
    __syncthreads();
  }
  if (!filtered || thread >= kExponents || sums.counts[thread] == 0) return;
  ExponentSums& all = static_cast<ExponentSums*>(a.zeros)[row];
  atomicAdd(&all.counts[thread], sums.counts[thread]);
  const unsigned long long high = sums.high[thread];
  atomicAdd(&all.masses[thread], (high << kHalfBits) + sums.low[thread]);
}

// What a block that draws for a row has in shared memory.
struct DrawShared {
  Bins bins;
  double groups[kExponents];  // sums of weights by exponent
  uint64_t masses[kExponents];
  uint32_t counts[kExponents];
  int exponent;     // of the weights among which a filter ends; -1: it drops nothing
  uint64_t target;  // that is reached there, of that exponent's own
  uint32_t least, listed, lower;
  int32_t place;
  double before;
};

// By one thread, from the largest exponent down: where `target` weights are reached.
__device__ void find_count(DrawShared& s, uint64_t target) {
  s.exponent = kExponents - 1;
  for (; s.exponent >= 0 && s.counts[s.exponent] < target; --s.exponent) {
    target -= s.counts[s.exponent];
  }
  s.target = target;
}
__device__ double groups_sum(const DrawShared& s, int last) {
  double sum = 0;
  for (int e = kExponents - 1; e >= last; --e) sum += s.groups[e];
  return sum;
}
// Where their sum reaches `wanted`.
__device__ void find_mass(DrawShared& s, int last, double wanted) {
  double before = 0;
  int e = kExponents - 1;
  for (; e >= last && before + s.groups[e] < wanted; --e) before += s.groups[e];
  s.exponent = e >= last ? e : -1;
  if (s.exponent < 0) return;
  // The least number of its units that does.
  const double unit = unit_of(e);
  uint64_t low = 1, high = s.masses[e];
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (before + static_cast<double>(middle) * unit >= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  s.target = low;
}

// By one thread: of values from first to last, that with which the sum passes `wanted`, or the last
// that is positive; `before` becomes the sum in front of it.
template <typename At>
__device__ int step_until(int count, double wanted, double& before, const At& at) {
  int chosen = 0;
  double sum = before;
  for (int i = 0; i < count; ++i) {
    const double value = at(i);
    if (value <= 0) continue;
    chosen = i;
    before = sum;
    sum += value;
    if (sum > wanted) break;
  }
  return chosen;
}

// Without filters: a block of the row, a piece of it, one of its tokens. `shared` has the sums of
// the blocks.
__device__ int32_t draw_from_all(const Weighted& row, DrawShared& s, void* shared, int parts,
                                 double uniform) {
  const auto* const sums = static_cast<const float*>(shared);
  if (threadIdx.x == 0) {
    double total = 0;
    for (int i = 0; i < parts; ++i) total += static_cast<double>(sums[i]);
    s.groups[0] = uniform * total;
    s.before = 0;
    s.place = step_until(parts, s.groups[0], s.before,
                         [&](int i) { return static_cast<double>(sums[i]); });
  }
  __syncthreads();
  const int begin = s.place * kDrawPart;
  const int count = min(kDrawPart, row.columns - begin);
  // A gap behind every piece lets threads read pieces side by side.
  auto* const weights = static_cast<float*>(shared);
  const auto at = [&](int i) -> float& { return weights[i + i / kPiece]; };
  for (int i = static_cast<int>(threadIdx.x); i < kDrawPart; i += kDrawThreads) {
    at(i) = i < count ? exact_exp((row.logits[begin + i] - row.largest) * row.factor) : 0.0f;
  }
  __syncthreads();
  auto* const pieces = reinterpret_cast<double*>(weights + kDrawPart + kPieces);
  if (threadIdx.x < kPieces) {
    const int piece = static_cast<int>(threadIdx.x);
    double sum = 0;
    for (int i = 0; i < kPiece; ++i) sum += static_cast<double>(at(piece * kPiece + i));
    pieces[piece] = sum;
  }
  __syncthreads();
  if (threadIdx.x > 0) return 0;
  const double wanted = s.groups[0];
  const int piece = step_until(kPieces, wanted, s.before, [&](int i) { return pieces[i]; });
  const int place = step_until(kPiece, wanted, s.before,
                               [&](int i) { return static_cast<double>(at(piece * kPiece + i)); });
  return begin + piece * kPiece + place;
}

// Takes in the sums of a row's parts, and says where its first filter ends and what is too light.
__device__ void find_first_cut(const Draw& a, const DrawRow& draw, DrawShared& s,
                               const float* sums_by_part, int parts) {
  const int e = static_cast<int>(threadIdx.x);
  if (e < kExponents) {
    ExponentSums& sums = static_cast<ExponentSums*>(a.zeros)[blockIdx.x];
    s.masses[e] = sums.masses[e];
    s.counts[e] = sums.counts[e];
    s.groups[e] = static_cast<double>(sums.masses[e]) * unit_of(e);
    sums.masses[e] = 0;
    sums.counts[e] = 0;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  float light = 0;
  s.exponent = -1;
  if (takes_top_k(draw, a.columns)) {
    find_count(s, static_cast<uint64_t>(draw.top_k));
  } else if (draw.top_p < 1) {
    double total = 0;
    for (int i = 0; i < parts; ++i) total += static_cast<double>(sums_by_part[i]);
    const double dropped = (1 - draw.top_p) * total;
    light = static_cast<float>(0.5 * dropped / static_cast<double>(a.columns));
    find_mass(s, 0, draw.top_p * total);
  }
  s.lower = max(1u, float_to_bits(max(light, draw.min_weight)));
  s.least = s.exponent >= 0 ? max(1u, static_cast<uint32_t>(s.exponent) << kMantissaBits)
            : takes_top_k(draw, a.columns) ? 1u
                                           : s.lower;
  s.listed = 0;
}

// Brings the weights that may be kept together, if they are few enough.
__device__ void list_weights(Weighted& row, DrawShared& s, void* shared) {
  uint32_t count = 0;
  for (int e = exponent_of(row.least); e < kExponents; ++e) count += s.counts[e];
  if (count > kListed) return;
  auto* const weights = static_cast<uint32_t*>(shared);
  auto* const tokens = reinterpret_cast<int32_t*>(weights + kListed);
  row.for_each([&](uint32_t weight, int32_t token) {
    const uint32_t at = atomicAdd(&s.listed, 1u);
    weights[at] = weight;
    tokens[at] = token;
  });
  __syncthreads();
  row.listed_weights = weights;
  row.listed_tokens = tokens;
  row.listed_count = static_cast<int>(s.listed);
}

// What top-p leaves of what top-k has.
__device__ void find_second_cut(const DrawRow& draw, const Weighted& row, DrawShared& s,
                                const Cut& cut) {
  const int last = s.exponent;  // that top-k ends in
  uint64_t own = 0;
  row.for_each([&](uint32_t weight, int32_t token) {
    if (exponent_of(weight) == last && cut.keeps(weight, token)) own += mantissa_of(weight);
  });
  own = s.bins.sum(own);
  if (threadIdx.x == 0) {
    if (last >= 0) {
      s.masses[last] = own;
      s.groups[last] = static_cast<double>(own) * unit_of(last);
    }
    find_mass(s, max(last, 0), draw.top_p * groups_sum(s, max(last, 0)));
  }
  __syncthreads();
}

__device__ int32_t draw_filtered(const Draw& a, const DrawRow& draw, Weighted& row, DrawShared& s,
                                 void* shared, int parts) {
  find_first_cut(a, draw, s, static_cast<const float*>(shared), parts);
  __syncthreads();
  row.least = s.least;
  list_weights(row, s, shared);
  const int token_bits = a.columns > 1 ? 32 - __clz(static_cast<int>(a.columns - 1)) : 1;
  const bool top_k = takes_top_k(draw, a.columns);
  Cut cut;
  if (top_k && s.exponent >= 0) {
    cut = cut_inside(s.bins, row, token_bits, cut, s.exponent, s.target,
                     [](uint32_t) { return uint64_t{1}; });
  }
  if (draw.top_p < 1) {
    if (top_k) find_second_cut(draw, row, s, cut);
    if (s.exponent >= 0) {
      cut = cut_inside(s.bins, row, token_bits, cut, s.exponent, s.target,
                       [](uint32_t weight) { return uint64_t{mantissa_of(weight)}; });
    }
  }
  const auto share = [](uint32_t weight) {
    return static_cast<uint64_t>(bits_to_float(weight) * cpu::kDrawUnits);
  };
  const auto takes = [&](uint32_t weight, int32_t token) {
    return weight >= s.lower && cut.keeps(weight, token);
  };
  uint64_t own = 0;
  row.for_each([&](uint32_t weight, int32_t token) {
    if (takes(weight, token)) own += share(weight);
  });
  const uint64_t total = s.bins.sum(own);
  const auto passed = static_cast<uint64_t>(draw.uniform * static_cast<double>(total));
  const auto key = [](uint32_t, int32_t token) { return static_cast<uint32_t>(token); };
  return static_cast<int32_t>(
      select(s.bins, row, token_bits, min(passed, total - 1) + 1, takes, key, share).key);
}

// A block for each row. `parts`: of a row.
__global__ void __launch_bounds__(kDrawThreads) draw_kernel(Draw a, int parts) {
  begin_kernel();
  __shared__ DrawShared s;
  const int64_t at = blockIdx.x;
  const DrawRow draw = load_table(a.draws + at);
  const int32_t likeliest = a.tokens[at];
  const bool samples = draw.kind == DrawRow::kSample;
  if (likeliest < 0 || !(samples || draw.is_scored)) return;
  Weighted row{.logits = a.logits + at * a.stride,
               .columns = static_cast<int32_t>(a.columns),
               .largest = a.logits[at * a.stride + likeliest],
               .factor = draw.factor,
               .listed_count = -1};
  void* const shared = dynamic_shared();
  for (int i = static_cast<int>(threadIdx.x); samples && i < parts; i += kDrawThreads) {
    static_cast<float*>(shared)[i] = part_sums(a, parts, at, false)[i];
  }
  __syncthreads();
  int32_t token = likeliest;
  if (samples) {
    token = is_filtered(draw, a.columns) ? draw_filtered(a, draw, row, s, shared, parts)
                                         : draw_from_all(row, s, shared, parts, draw.uniform);
  }
  if (threadIdx.x > 0) return;
  a.tokens[at] = token;
  if (!draw.is_scored) return;
  Score& score = a.scores[at];
  score = {.total = 0, .largest = row.largest, .logit = row.logits[token]};
  for (int i = 0; i < parts; ++i) {
    score.total += static_cast<double>(part_sums(a, parts, at, true)[i]);
  }
}

__device__ double within_floats(double value) {
  constexpr double kLargest = FLT_MAX;
  if (value < -kLargest) return -kLargest;
  return kLargest < value ? kLargest : value;
}

// A block for each row; no token occurs twice in it.
__global__ void __launch_bounds__(kDrawPartThreads) penalise_kernel(Penalise a) {
  begin_kernel();
  const DrawRow draw = load_table(a.draws + blockIdx.x);
  float* const logits = a.logits + int64_t{blockIdx.x} * a.stride;
  for (int i = static_cast<int>(threadIdx.x); i < draw.seen_count; i += kDrawPartThreads) {
    const SeenToken seen = load_table(draw.seen + i);
    if (seen.token < 0 || seen.token >= a.columns) continue;
    const float raw = logits[seen.token];
    if (!(fabsf(raw) < INFINITY)) continue;
    double logit = raw;
    logit = within_floats(logit > 0 ? logit / draw.repetition_penalty
                                    : logit * draw.repetition_penalty);
    if (seen.generated_count > 0) {
      logit -= draw.presence_penalty + seen.generated_count * draw.frequency_penalty;
    }
    logits[seen.token] = static_cast<float>(within_floats(logit));
  }
}

unsigned parts_of_row(int64_t columns) { return blocks_for(columns, kDrawPart); }

}  // namespace

int64_t draw_bytes(int64_t rows, int64_t columns) {
  return 2 * rows * parts_of_row(columns) * int64_t{sizeof(float)};
}

int64_t draw_zeros_bytes(int64_t rows) { return rows * int64_t{sizeof(ExponentSums)}; }

void penalise(const LaunchStream& stream, const Penalise& args) {
  launch(stream, {static_cast<unsigned>(args.rows), kDrawPartThreads}, penalise_kernel, args);
}

void draw(const LaunchStream& stream, const Draw& args) {
  constexpr int64_t kShared = int64_t{kListed} * 8;
  static_assert(kShared >= (kDrawPart + kPieces) * 4 + kPieces * 8);
  static_assert(kShared >= cpu::kDrawColumnsMax / kDrawPart * 4);
  const ConstRows logits = {args.logits, ElementType::kF32, args.stride};
  const bool vectors = args.columns % kVector == 0 && aligned(args.rows, logits);
  const auto rows = static_cast<unsigned>(args.rows);
  launch(stream, {{parts_of_row(args.columns), rows}, kDrawPartThreads},
         vectors ? draw_parts_kernel<kVector> : draw_parts_kernel<1>, args);
  launch(stream, {rows, kDrawThreads, kShared}, draw_kernel, args,
         static_cast<int>(parts_of_row(args.columns)));
}

}  // namespace jige::cuda
