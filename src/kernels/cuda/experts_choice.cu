// The choice of experts, and rows by expert.
//
// A warp chooses for a token, with the bits of the CPU (exact_math.cuh). Then places get rows by a
// counting sort that keeps their order: a place is behind those of lower experts and those before
// it of its own, which are counted by looking at all of a chunk. A few tokens are one block's work.
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/experts.h"

namespace jige::cuda {
namespace {

using cpu::ChooseArgs;

constexpr float kLowest = -__builtin_inff();
constexpr int64_t kSharedBytes = 48 * 1024;
constexpr int kWarpsMax = 8;  // of a block that chooses
constexpr int kFewTokens = 16;
constexpr int kFewPlaces = 1024;
constexpr int kChoiceChunk = 1024;  // places
constexpr int kChoiceThreads = 256;

__device__ inline float as_rank(float logit) { return logit == logit ? logit : kLowest; }

struct Ranked {
  float value;
  int index;  // -1: none
};

// The first of the highest that come after `last` in descending order; by a whole warp.
__device__ Ranked next_highest(const float* ranks, int count, const Ranked& last) {
  Ranked best = {kLowest, -1};
  for (int e = lane_id(); e < count; e += kWarp) {
    const float rank = as_rank(ranks[e]);
    const bool after =
        last.index < 0 || rank < last.value || (rank == last.value && e > last.index);
    if (after && (best.index < 0 || rank > best.value)) best = {rank, e};
  }
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Ranked other = {__shfl_xor_sync(kAllLanes, best.value, lanes),
                          __shfl_xor_sync(kAllLanes, best.index, lanes)};
    const bool first = other.value == best.value && other.index < best.index;
    if (other.index >= 0 && (best.index < 0 || other.value > best.value || first)) best = other;
  }
  return best;
}

__device__ float highest_logit(const float* logits, int experts) {
  return logits[next_highest(logits, experts, {0.0f, -1}).index];
}

__device__ float sum_of_powers(const float* logits, int count, float max) {
  return row_sum(count, [&](int i) { return exact_exp(logits[i] - max); });
}

// Memory of a warp.
struct Memory {
  float* ranks;   // [E]
  float* own;     // [k] of the chosen
  int* order;     // [k] as they were chosen
  int* sorted;    // [k] ascending
  float* scores;  // [g] of groups
  int* kept;      // [g]

  __device__ Memory(float* words, const ChooseArgs& args) {
    ranks = words;
    own = ranks + args.experts;
    order = reinterpret_cast<int*>(own + args.chosen);
    sorted = order + args.chosen;
    scores = reinterpret_cast<float*>(sorted + args.chosen);
    kept = reinterpret_cast<int*>(scores + args.groups);
  }
};
int64_t memory_words(const ChooseArgs& args) {
  return args.experts + 3 * args.chosen + 2 * args.groups;
}
static_assert(kExpertsMax * 6 * int64_t{sizeof(float)} <= kSharedBytes);

// By one lane.
__device__ float group_score(const ChooseArgs& args, const float* ranks, int size) {
  float best = as_rank(ranks[0]);
  float second = kLowest;
  for (int e = 1; e < size; ++e) {
    const float rank = as_rank(ranks[e]);
    second = fmaxf(second, fminf(rank, best));
    best = fmaxf(best, rank);
  }
  return args.pairs && size > 1 ? best + second : best;
}

// Puts those of groups that are not chosen behind all others.
__device__ void keep_chosen_groups(const ChooseArgs& args, const Memory& memory) {
  const int groups = static_cast<int>(args.groups);
  const int size = static_cast<int>(args.experts / args.groups);
  for (int g = lane_id(); g < groups; g += kWarp) {
    memory.scores[g] = group_score(args, memory.ranks + g * size, size);
    memory.kept[g] = 0;
  }
  __syncwarp();
  Ranked last = {0.0f, -1};
  for (int j = 0; j < args.chosen_groups; ++j) {
    last = next_highest(memory.scores, groups, last);
    if (lane_id() == 0) memory.kept[last.index] = 1;
  }
  __syncwarp();
  for (int e = lane_id(); e < args.experts; e += kWarp) {
    if (!memory.kept[e / size]) memory.ranks[e] = kLowest;
  }
}

// What experts are compared by.
__device__ void rank_experts(const ChooseArgs& args, const float* logits, const Memory& memory) {
  const int experts = static_cast<int>(args.experts);
  const bool limited = args.chosen_groups < args.groups;
  const bool scores = args.sigmoid || args.bias || (limited && args.pairs);
  float max = 0.0f;
  float factor = 0.0f;
  if (scores && !args.sigmoid) {
    max = highest_logit(logits, experts);
    factor = 1.0f / sum_of_powers(logits, experts, max);
  }
  for (int e = lane_id(); e < experts; e += kWarp) {
    float rank = logits[e];
    if (scores) rank = args.sigmoid ? exact_sigmoid(rank) : exact_exp(rank - max) * factor;
    if (args.bias) rank = rank + args.bias[e];
    memory.ranks[e] = rank;
  }
  __syncwarp();
  if (limited) keep_chosen_groups(args, memory);
  __syncwarp();
}

// memory.own, the logits of the chosen, become weights; `logits` are all of the token's.
__device__ void weigh_chosen(const ChooseArgs& args, const float* logits, const Memory& memory) {
  const int chosen = static_cast<int>(args.chosen);
  const int experts = static_cast<int>(args.experts);
  float max = 0.0f;
  float factor = args.scale;
  if (args.sigmoid) {
    float sum = 0.0f;
    for (int j = 0; j < chosen && args.over_chosen; ++j) sum = sum + exact_sigmoid(memory.own[j]);
    if (args.over_chosen) factor = factor / (sum + args.sum_offset);
  } else {
    max = highest_logit(logits, experts);
    float sum = args.over_chosen ? sum_of_powers(memory.own, chosen, max) : 0.0f;
    if (!args.over_chosen || args.sum_min > 0.0f) {
      const float all = sum_of_powers(logits, experts, max);
      const float least = args.over_chosen ? args.sum_min * all : all;
      if (sum < least) sum = least;
    }
    factor = factor / sum;
  }
  __syncwarp();
  for (int j = lane_id(); j < chosen; j += kWarp) {
    const float logit = memory.own[j];
    memory.own[j] = (args.sigmoid ? exact_sigmoid(logit) : exact_exp(logit - max)) * factor;
  }
  __syncwarp();
}

// By a whole warp.
__device__ void choose(const RouteArgs& args, int64_t token, float* words) {
  const ChooseArgs& choice = args.choice;
  const Memory memory(words, choice);
  const float* logits = choice.logits + token * choice.logits_stride;
  const int chosen = static_cast<int>(choice.chosen);
  rank_experts(choice, logits, memory);
  Ranked last = {0.0f, -1};
  for (int j = 0; j < chosen; ++j) {
    last = next_highest(memory.ranks, static_cast<int>(choice.experts), last);
    if (lane_id() == 0) memory.order[j] = last.index;
  }
  __syncwarp();
  for (int j = lane_id(); j < chosen; j += kWarp) {
    int lower = 0;
    for (int i = 0; i < chosen; ++i) lower += memory.order[i] < memory.order[j] ? 1 : 0;
    memory.sorted[lower] = memory.order[j];
    memory.own[lower] = logits[memory.order[j]];
  }
  __syncwarp();
  weigh_chosen(choice, logits, memory);
  for (int j = lane_id(); j < chosen; j += kWarp) {
    const int64_t place = token * chosen + j;
    const int expert = memory.sorted[j];
    choice.experts_of[place] = expert;
    choice.weights[place] = memory.own[j];
    if (args.scales) args.scaled_weights[place] = memory.own[j] * args.scales[expert];
  }
}

__global__ void __launch_bounds__(kWarpsMax* kWarp) choose_kernel(RouteArgs args, int words) {
  begin_kernel();
  const int64_t token = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp_id();
  if (token >= args.tokens) return;
  choose(args, token, reinterpret_cast<float*>(dynamic_shared()) + warp_id() * words);
}

// A warp a token; all of the rest as well.
__global__ void __launch_bounds__(kFewTokens* kWarp) route_few_kernel(RouteArgs args, int words) {
  begin_kernel();
  __shared__ int experts_of[kFewPlaces];
  choose(args, warp_id(), reinterpret_cast<float*>(dynamic_shared()) + warp_id() * words);
  __syncthreads();
  const int places = static_cast<int>(args.tokens * args.choice.chosen);
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < places; i += threads) experts_of[i] = args.choice.experts_of[i];
  __syncthreads();
  for (int place = thread; place < places; place += threads) {
    const int expert = experts_of[place];
    int row = 0;
    for (int i = 0; i < places; ++i) {
      row += experts_of[i] < expert || (experts_of[i] == expert && i < place) ? 1 : 0;
    }
    args.row_of_place[place] = row;
    args.place_of_row[row] = place;
  }
  for (int e = thread; e < args.choice.experts; e += threads) {
    int end = 0;
    for (int i = 0; i < places; ++i) end += experts_of[i] <= e ? 1 : 0;
    args.row_ends[e] = end;
  }
}

// The experts of a chunk's places; -1 behind the last one.
__device__ void load_chunk(const RouteArgs& args, int* experts_of) {
  const int64_t places = args.tokens * args.choice.chosen;
  for (int i = static_cast<int>(threadIdx.x); i < kChoiceChunk; i += kChoiceThreads) {
    const int64_t place = int64_t{blockIdx.x} * kChoiceChunk + i;
    experts_of[i] = place < places ? args.choice.experts_of[place] : -1;
  }
  __syncthreads();
}

// Of elements [0, end) of a chunk those that are `expert`.
__device__ int count_before(const int* experts_of, int end, int expert) {
  int count = 0;
  int i = 0;
  for (; i + 4 <= end; i += 4) {
    const int4 four = *reinterpret_cast<const int4*>(experts_of + i);
    count += (four.x == expert) + (four.y == expert) + (four.z == expert) + (four.w == expert);
  }
  for (; i < end; ++i) count += experts_of[i] == expert ? 1 : 0;
  return count;
}

// counts[chunk][expert]
__global__ void __launch_bounds__(kChoiceThreads) count_kernel(RouteArgs args, int* counts) {
  begin_kernel();
  __align__(16) __shared__ int experts_of[kChoiceChunk];
  load_chunk(args, experts_of);
  for (int e = static_cast<int>(threadIdx.x); e < args.choice.experts; e += kChoiceThreads) {
    counts[blockIdx.x * args.choice.experts + e] = count_before(experts_of, kChoiceChunk, e);
  }
}

// Of counts, each becomes the sum of those of the chunks before; row_ends are told by all.
constexpr int kScanThreads = 1024;
constexpr int kScanned = 16;  // counts that a thread has on the way
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(RouteArgs args, int* counts, int chunks) {
  begin_kernel();
  __shared__ int totals[kExpertsMax];
  const auto experts = static_cast<int>(args.choice.experts);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    int sum = 0;
    for (int first = 0; first < chunks; first += kScanned) {
      int own[kScanned];
#pragma unroll
      for (int i = 0; i < kScanned; ++i) {
        own[i] = first + i < chunks ? counts[int64_t{first + i} * experts + e] : 0;
      }
#pragma unroll
      for (int i = 0; i < kScanned; ++i) {
        if (first + i < chunks) counts[int64_t{first + i} * experts + e] = sum;
        sum += own[i];
      }
    }
    totals[e] = sum;
  }
  __syncthreads();
  if (warp_id() != 0) return;
  int before = 0;
  for (int first = 0; first < experts; first += kWarp) {
    const int e = first + lane_id();
    int end = e < experts ? totals[e] : 0;
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, end, lanes);
      if (lane_id() >= lanes) end += lower;
    }
    end += before;
    if (e < experts) args.row_ends[e] = end;
    before = __shfl_sync(kAllLanes, end, kWarp - 1);
  }
}

__global__ void __launch_bounds__(kChoiceThreads) place_kernel(RouteArgs args, const int* counts) {
  begin_kernel();
  __align__(16) __shared__ int experts_of[kChoiceChunk];
  load_chunk(args, experts_of);
  for (int i = static_cast<int>(threadIdx.x); i < kChoiceChunk; i += kChoiceThreads) {
    const int expert = experts_of[i];
    if (expert < 0) continue;
    const int begin = expert > 0 ? args.row_ends[expert - 1] : 0;
    const int row = begin + counts[blockIdx.x * args.choice.experts + expert] +
                    count_before(experts_of, i, expert);
    const int place = static_cast<int>(blockIdx.x) * kChoiceChunk + i;
    args.row_of_place[place] = row;
    args.place_of_row[row] = place;
  }
}

int chunks_of(const RouteArgs& args) {
  return static_cast<int>(blocks_for(args.tokens * args.choice.chosen, kChoiceChunk));
}

// Whether weigh_chosen() took the least sum in the place of that over the chosen.
__device__ bool sum_is_least(const ChooseArgs& args, const float* logits, const int32_t* list) {
  if (!args.over_chosen || args.sigmoid || args.sum_min <= 0.0f) return false;
  const int experts = static_cast<int>(args.experts);
  const float max = highest_logit(logits, experts);
  const float own = row_sum(static_cast<int>(args.chosen),
                            [&](int j) { return exact_exp(logits[list[j]] - max); });
  return own < args.sum_min * sum_of_powers(logits, experts, max);
}

__global__ void __launch_bounds__(kWarpsMax* kWarp)
    slopes_kernel(cpu::SlopesArgs args, int64_t tokens) {
  begin_kernel();
  const int64_t token = int64_t{blockIdx.x} * kWarpsMax + warp_id();
  if (token >= tokens) return;
  const ChooseArgs& choice = args.choice;
  const int chosen = static_cast<int>(choice.chosen);
  const int experts = static_cast<int>(choice.experts);
  const float* logits = choice.logits + token * choice.logits_stride;
  const int32_t* list = choice.experts_of + token * chosen;
  const float* weights = choice.weights + token * chosen;
  const float* grads = args.grad_weights + token * chosen;
  float* out = args.grad_logits + token * args.grad_stride;
  float total = 0.0f;
  for (int j = 0; j < chosen; ++j) total = total + weights[j] * grads[j];
  const bool least = sum_is_least(choice, logits, list);
  const bool others = !choice.sigmoid && (!choice.over_chosen || least);
  float max = 0.0f;
  float factor = 0.0f;
  if (others) {
    max = highest_logit(logits, experts);
    factor = -total / sum_of_powers(logits, experts, max);
  }
  for (int e = lane_id(); e < experts; e += kWarp) {
    out[e] = others ? exact_exp(logits[e] - max) * factor : 0.0f;
  }
  __syncwarp();
  const bool single = choice.sigmoid && !choice.over_chosen;
  const float mean = single ? 0.0f : total / choice.scale;
  for (int j = lane_id(); j < chosen; j += kWarp) {
    const int expert = list[j];
    if (least) {
      out[expert] = out[expert] + weights[j] * grads[j];
      continue;
    }
    const float slope = weights[j] * (grads[j] - mean);
    out[expert] = choice.sigmoid ? (1.0f - exact_sigmoid(logits[expert])) * slope : slope;
  }
}

}  // namespace

int64_t route_scratch_bytes(const RouteArgs& args) {
  return chunks_of(args) * args.choice.experts * int64_t{sizeof(int)};
}

void route(const LaunchStream& stream, const RouteArgs& args, void* scratch) {
  if (args.tokens == 0) return;
  const int64_t words = memory_words(args.choice);
  const int64_t bytes = words * int64_t{sizeof(float)};
  const auto words_argument = static_cast<int>(words);
  if (args.tokens <= kFewTokens && args.tokens * args.choice.chosen <= kFewPlaces &&
      args.tokens * bytes + kFewPlaces * int64_t{sizeof(int)} <= kSharedBytes) {
    const auto threads = static_cast<unsigned>(args.tokens * kWarp);
    launch(stream, {1, threads, args.tokens * bytes}, route_few_kernel, args, words_argument);
    return;
  }
  const int64_t warps = min(int64_t{kWarpsMax}, kSharedBytes / bytes);
  launch(stream,
         {blocks_for(args.tokens, warps), static_cast<unsigned>(warps * kWarp), warps * bytes},
         choose_kernel, args, words_argument);
  auto* counts = static_cast<int*>(scratch);
  const int chunks = chunks_of(args);
  launch(stream, {static_cast<unsigned>(chunks), kChoiceThreads}, count_kernel, args, counts);
  launch(stream, {1, kScanThreads}, scan_kernel, args, counts, chunks);
  launch(stream, {static_cast<unsigned>(chunks), kChoiceThreads}, place_kernel, args, counts);
}

void route_slopes(const LaunchStream& stream, const cpu::SlopesArgs& args, int64_t tokens) {
  launch(stream, {blocks_for(tokens, kWarpsMax), kWarpsMax * kWarp}, slopes_kernel, args, tokens);
}

}  // namespace jige::cuda
