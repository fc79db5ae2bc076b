// Splits of the cache in bf16 on tensor cores: up to 8 or 16 packed rows a block of threads, whose
// warps take every fourth cache block, keys and values straight from device memory to registers.
//
// A lane's 16 bytes are operands as they come, since sums do not mind which column is which. With g
// and t of gpu.cuh: scores are queries [16 rows, 16] times keys [16, 8 tokens], where lane (g, t)
// has columns 32 j + 8 t … + 7 of token g, for two products; and outputs transposed, values [16
// columns, 16 tokens] times weights [16, 8 rows], where it has columns 64 c + 8 g … + 7 of tokens
// 2t, 2t+1, 2t+8, 2t+9, for four. The weights of lane (g, t) are where the scores left them.
//
// Keys and values of new rows may be appended first: a block writes those that lie in its split,
// and reads them back. Blocks for other packed rows of the same split write the same.
#include <type_traits>

#include "kernels/cuda/attention_cached.cuh"

namespace jige::cuda {
namespace {

constexpr int kEight = 8;  // elements of 16 bytes
constexpr int kChunkColumns = 64;
constexpr int kChunksMax = 4;
constexpr int kTilesMax = 2;
constexpr int kChunksForTwoTiles = 2;  // more would not fit in registers

template <int kChunks>
struct Keys {
  uint4 of[2][2 * kChunks];  // tokens g, g + 8
};
template <int kChunks>
struct Values {
  uint4 of[4][kChunks];  // tokens 2t, 2t+1, 2t+8, 2t+9
};

// Slots [begin, end) of a cache block; the others count as zeros, whatever they hold.
struct Slots {
  int begin, end;
  __device__ bool all() const { return begin <= 0 && end >= kCachedSlots; }
  __device__ bool has(int slot) const { return (begin <= slot) & (slot < end); }
};

// The width of heads: 64 · kChunks where kWhole, or less.
template <int kChunks, bool kWhole>
struct Width {
  int of_head;
  explicit __device__ Width(const CachedAttention& a)
      : of_head(kWhole ? kChunks * kChunkColumns : a.head_dim) {}
  __device__ bool has(int column) const { return kWhole || column < of_head; }
};

// Body(i, all) for the 4 · kChunks loads of a lane, where `all` is known when this is compiled:
// that everything is to be loaded.
template <int kChunks, bool kWhole, typename Body>
__device__ void for_loads(Slots slots, Body body) {
  if (kWhole && slots.all()) {
#pragma unroll
    for (int i = 0; i < 4 * kChunks; ++i) body(i, std::true_type());
  } else {
#pragma unroll
    for (int i = 0; i < 4 * kChunks; ++i) body(i, std::false_type());
  }
}
template <bool kAll>
__device__ uint4 load_one(const Bf16* at, bool valid, std::bool_constant<kAll>) {
  if constexpr (kAll) return load_streamed(at);
  return load_streamed_or_zero(at, valid);
}

template <int kChunks, bool kWhole>
__device__ void load_keys(Keys<kChunks>& keys, const Bf16* from, Width<kChunks, kWhole> width,
                          Slots slots) {
  const int column = lane_id() % 4 * kEight;
  const Bf16* at = from + lane_id() / 4 * width.of_head + column;
  for_loads<kChunks, kWhole>(slots, [&](int i, auto all) {
    const int u = i / (2 * kChunks);
    const int j = i % (2 * kChunks);
    const bool valid = slots.has(kEight * u + lane_id() / 4) & width.has(column + j * 32);
    keys.of[u][j] = load_one(at + u * kEight * width.of_head + j * 32, valid, all);
  });
}

template <int kChunks, bool kWhole>
__device__ void load_values(Values<kChunks>& values, const Bf16* from, Width<kChunks, kWhole> width,
                            Slots slots) {
  const int column = lane_id() / 4 * kEight;
  const Bf16* at = from + lane_id() % 4 * 2 * width.of_head + column;
  for_loads<kChunks, kWhole>(slots, [&](int i, auto all) {
    const int slot = i / kChunks % 2 + i / kChunks / 2 * kEight;  // from 2t on
    const int c = i % kChunks * kChunkColumns;
    const bool valid = slots.has(slot + lane_id() % 4 * 2) & width.has(column + c);
    values.of[i / kChunks][i % kChunks] = load_one(at + slot * width.of_head + c, valid, all);
  });
}

// Columns [c, c + 4) of a head, turned by the angles of its position.
struct Turn {
  const float* angles;  // or null
  int half;             // of the columns that turn

  __device__ Turn(const CachedAppend& append, const float* table, int position)
      : angles(table ? table + position * append.angle_stride : nullptr),
        half(append.rotary_dim / 2) {}
  __device__ uint2 operator()(const Bf16* head, int c) const {
    const uint2 own = *reinterpret_cast<const uint2*>(head + c);
    if (!angles || c >= 2 * half) return own;
    const bool first = c < half;
    const int pair = first ? c : c - half;
    const uint2 other = *reinterpret_cast<const uint2*>(head + (first ? c + half : pair));
    const float4 cosine = *reinterpret_cast<const float4*>(angles + pair);
    const float4 sine = *reinterpret_cast<const float4*>(angles + half + pair);
    const auto turned = [first](uint32_t x, uint32_t y, float of_x, float of_y) {
      const float across = bits_to_float(y) * of_y;
      return fmaf(bits_to_float(x), of_x, first ? -across : across);
    };
    const auto two = [&](uint32_t x, uint32_t y, float cos0, float cos1, float sin0, float sin1) {
      return floats_to_bf16x2(turned(x << 16, y << 16, cos0, sin0),
                              turned(x & 0xffff0000u, y & 0xffff0000u, cos1, sin1));
    };
    return make_uint2(two(own.x, other.x, cosine.x, cosine.y, sine.x, sine.y),
                      two(own.y, other.y, cosine.z, cosine.w, sine.z, sine.w));
  }
};

// Keys and values of the sequence's new rows that lie in the block's split.
__device__ inline void append_rows(const CachedAttention& a, const CachedWork& work) {
  if (!a.append.k.data) return;
  const CachedSequence& sequence = work.sequence;
  const int context = sequence.context_count;
  const int begin = max(context, work.split * sequence.split_keys);
  const int end = min(context + sequence.row_count, (work.split + 1) * sequence.split_keys);
  const int pieces = a.head_dim / 4;  // of a head
  const int64_t column = int64_t{work.kv_head} * a.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < (end - begin) * 2 * pieces; i += kCachedThreads) {
    const int position = begin + i / (2 * pieces);
    const bool is_value = i % (2 * pieces) >= pieces;
    const int c = i % pieces * 4;
    const ConstRows& from = is_value ? a.append.v : a.append.k;
    const int64_t row = int64_t{sequence.row_begin} + position - context;
    const Bf16* head = static_cast<const Bf16*>(from.data) + row * from.stride + column;
    const int slot = position % kCachedSlots + (is_value ? kCachedSlots : 0);
    Bf16* to = static_cast<Bf16*>(a.cache) + work.keys_at(a, position / kCachedSlots) +
               slot * a.head_dim + c;
    const Turn turn(a.append, is_value ? nullptr : a.append.k_angles, position);
    *reinterpret_cast<uint2*>(to) = turn(head, c);
  }
}

// Keys and values that a warp reads, while the kernel before may still run.
__device__ inline void prefetch_blocks(const CachedAttention& a, const CachedWork& work, int first,
                                       int end) {
  const int block = first + lane_id() * kCachedWarps;
  if (block >= end) return;
  prefetch_to_cache(static_cast<const Bf16*>(a.cache) + work.keys_at(a, block),
                    2 * kCachedSlots * a.head_dim * int{sizeof(Bf16)});
}

// The queries in shared memory as the operands of lanes: [32 columns][half][lane], 16 bytes each.
__device__ inline void place_queries(const CachedAttention& a, const CachedWork& work, int steps,
                                     uint4* to) {
  const auto* q = static_cast<const Bf16*>(a.q.data);
  for (int i = static_cast<int>(threadIdx.x); i < steps * kWarp; i += kCachedThreads) {
    const int g = i % kWarp / 4;
    const int c = i / kWarp / 2 * 4 * kEight + i % 4 * kEight + i / kWarp % 2 * 4;
    uint2 rows[2] = {make_uint2(0, 0), make_uint2(0, 0)};
    for (int half = 0; half < 2; ++half) {
      const int row = g + half * kEight;
      if (row >= work.count || c >= a.head_dim) continue;
      const int64_t column = int64_t{work.head_of(row)} * a.head_dim;
      const Turn turn(a.append, a.append.q_angles, work.position_of(row));
      rows[half] = turn(q + work.row_of(row) * a.q.stride + column, c);
    }
    to[i] = make_uint4(rows[0].x, rows[1].x, rows[0].y, rows[1].y);
  }
}

// s[u]: products of tokens 8u + 2t, 8u + 2t + 1 with rows g (0, 1) and g + 8 (2, 3).
template <int kChunks>
__device__ void multiply_queries(const uint4* queries, const Keys<kChunks>& keys,
                                 float (&s)[2][4]) {
#pragma unroll
  for (int j = 0; j < 2 * kChunks; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 q = queries[(2 * j + half) * kWarp + lane_id()];
      const uint32_t left[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const uint4& k = keys.of[u][j];
        const uint32_t right[2] = {half ? k.z : k.x, half ? k.w : k.y};
        mma_bf16(s[u], left, right);
      }
    }
  }
}

// Of rows 8 tile + g: the maximum, this lane's share of the sum of weights, and the bounds of what
// they see.
template <int kTiles>
struct Softmax {
  float m[kTiles], l[kTiles];
  int first[kTiles], position[kTiles];

  __device__ Softmax(const CachedAttention& a, const CachedWork& work) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      m[tile] = -INFINITY;
      l[tile] = 0;
      position[tile] = work.position_of(min(tile * kEight + lane_id() / 4, work.count - 1));
      first[tile] = CachedWork::first_of(a, position[tile]);
    }
  }

  // Products to weights, as operands; alpha: what sums so far are multiplied with. Whether any
  // of them is not 1.
  __device__ bool weigh(const CachedScore& score, int begin, bool all_see, float (&s)[2][4],
                        uint32_t (&weights)[kTiles][2], float (&alpha)[kTiles]) {
    bool changed = false;
    score(s[0]);
    score(s[1]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float top = m[tile];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s[i / 2][2 * tile + i % 2];
        const int token = begin + i / 2 * kEight + lane_id() % 4 * 2 + i % 2;
        if (!all_see && (token < first[tile] || token > position[tile])) x = -INFINITY;
        top = fmaxf(top, x);
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float base = top == -INFINITY ? 0.0f : top;
      changed |= top != m[tile];
      alpha[tile] = fast_exp2(m[tile] - base);
      m[tile] = top;
      l[tile] *= alpha[tile];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const float low = fast_exp2(s[u][2 * tile] - base);
        const float high = fast_exp2(s[u][2 * tile + 1] - base);
        l[tile] += low + high;
        weights[tile][u] = floats_to_bf16x2(low, high);
      }
    }
    return __any_sync(kAllLanes, changed) != 0;
  }
};

// Sums of values: [tile][chunk][i]: columns 64 chunk + 8 g + 2 i (0, 1) and the next one (2, 3) of
// rows 8 tile + 2t and the next one.
template <int kChunks, int kTiles>
struct Outputs {
  float of[kTiles][kChunks][4][4] = {};

  __device__ void rescale(const float (&alpha)[kTiles]) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int source = lane_id() % 4 * kEight;
      const float even = __shfl_sync(kAllLanes, alpha[tile], source);
      const float odd = __shfl_sync(kAllLanes, alpha[tile], source + 4);
#pragma unroll
      for (int i = 0; i < kChunks * 4 * 4; ++i) {
        of[tile][i / 16][i / 4 % 4][i % 4] *= i % 2 ? odd : even;
      }
    }
  }

  __device__ void add(const Values<kChunks>& values, const uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const auto word = [&](int token, int i) {
        const uint4& v = values.of[token][chunk];
        return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t left[4] = {
            pair_low_halves(word(0, i), word(1, i)), pair_high_halves(word(0, i), word(1, i)),
            pair_low_halves(word(2, i), word(3, i)), pair_high_halves(word(2, i), word(3, i))};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          mma_bf16(of[tile][chunk][i], left, weights[tile]);
        }
      }
    }
  }
};

// The warps add their sums up, the first one first.
template <int kChunks, int kTiles>
__device__ void add_up_tiles(const Softmax<kTiles>& softmax,
                             const Outputs<kChunks, kTiles>& outputs, CachedSums& sums) {
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    float l = softmax.l[tile] + __shfl_xor_sync(kAllLanes, softmax.l[tile], 1);
    l += __shfl_xor_sync(kAllLanes, l, 2);
    if (t != 0) continue;
    sums.m[warp_id() * sums.rows + tile * kEight + g] = softmax.m[tile];
    sums.l[warp_id() * sums.rows + tile * kEight + g] = l;
  }
  for (int warp = 0; warp < kCachedWarps; ++warp) {
    __syncthreads();
    if (warp != warp_id()) continue;
#pragma unroll
    for (int i = 0; i < kTiles * 2; ++i) {
      const int row = i / 2 * kEight + 2 * t + i % 2;
      const float weight = sums.weight(warp, row);
#pragma unroll
      for (int j = 0; j < kChunks * 2; ++j) {
        auto& to = *reinterpret_cast<float4*>(sums.o + row * sums.stride + j / 2 * kChunkColumns +
                                              g * kEight + j % 2 * 4);
        const float4 before = warp == 0 ? make_float4(0, 0, 0, 0) : to;
        const auto& own = outputs.of[i / 2][j / 2];
        const float* low = own[j % 2 * 2] + i % 2;
        const float* high = own[j % 2 * 2 + 1] + i % 2;
        to = make_float4(fmaf(low[0], weight, before.x), fmaf(low[2], weight, before.y),
                         fmaf(high[0], weight, before.z), fmaf(high[2], weight, before.w));
      }
    }
  }
  __syncthreads();
}

template <int kChunks, int kTiles>
constexpr int64_t shared_bytes() {
  return int64_t{kChunks} * 4 * kWarp * int64_t{sizeof(uint4)} +
         CachedSums::bytes(kTiles * kEight, kChunks * kChunkColumns + 4);
}

template <int kChunks, int kTiles, bool kWhole>
__global__ void __launch_bounds__(kCachedThreads, kChunks* kTiles == 2 ? 3 : 2)
    few_kernel(CachedAttention a) {
  const CachedItem item = load_table(a.few + blockIdx.x);
  const CachedWork work(a, item.sequence < 0 ? CachedItem{} : item, kTiles * kEight);
  // The first cache block of this warp, and the one behind the last that is seen.
  const int end = work.hi >= work.lo ? work.hi / kCachedSlots + 1 : 0;
  int block = work.lo / kCachedSlots;
  block += (warp_id() - block % kCachedWarps + kCachedWarps) % kCachedWarps;
  const bool any = item.sequence >= 0 && work.count > 0;
  if (any) prefetch_blocks(a, work, block, end);
  begin_kernel();
  if (!any) return;
  auto* queries = reinterpret_cast<uint4*>(dynamic_shared());
  CachedSums sums(dynamic_shared() + kChunks * 4 * kWarp * sizeof(uint4), kTiles * kEight,
                  kChunks * kChunkColumns + 4);
  const auto* cache = static_cast<const Bf16*>(a.cache);
  const Width<kChunks, kWhole> width(a);
  const int value_step = kCachedSlots * width.of_head;
  const auto slots_of = [&](int of_block) {
    return Slots{work.lo - of_block * kCachedSlots, work.hi - of_block * kCachedSlots + 1};
  };
  append_rows(a, work);
  place_queries(a, work, kChunks * 4, queries);
  __syncthreads();
  Keys<kChunks> keys;
  Values<kChunks> values;
  if (block < end) {
    const Bf16* from = cache + work.keys_at(a, block);
    load_keys(keys, from, width, slots_of(block));
    load_values(values, from + value_step, width, slots_of(block));
  }
  const CachedScore score(a);
  Softmax<kTiles> softmax(a, work);
  Outputs<kChunks, kTiles> outputs;
  while (block < end) {
    const int next = block + kCachedWarps;
    const Bf16* from = next < end ? cache + work.keys_at(a, next) : nullptr;
    float s[2][4] = {};
    multiply_queries(queries, keys, s);
    if (from) load_keys(keys, from, width, slots_of(next));
    uint32_t weights[kTiles][2];
    float alpha[kTiles];
    const int begin = block * kCachedSlots;
    const bool all_see = work.all_see(a, begin, begin + kCachedSlots);
    if (softmax.weigh(score, begin, all_see, s, weights, alpha)) outputs.rescale(alpha);
    outputs.add(values, weights);
    if (from) load_values(values, from + value_step, width, slots_of(next));
    block = next;
  }
  add_up_tiles(softmax, outputs, sums);
  store_sums(a, work, sums);
  if (!work.partial()) return;
  const unsigned of_head = static_cast<unsigned>(item.sequence) * gridDim.y + blockIdx.y;
  int32_t* counter = a.counters + int64_t{of_head} * gridDim.z + blockIdx.z;
  if (is_last_block(counter, work.sequence.split_count)) merge_splits(a, work);
}

// Blocks for the packed rows of a sequence, where each takes so many.
unsigned few_parts(const CachedAttention& args, int rows) {
  return blocks_for(int64_t{args.few_rows_max} * (args.head_count / args.kv_head_count), rows);
}

template <int kChunks, int kTiles>
void launch_few(const LaunchStream& stream, const CachedAttention& args) {
  const bool whole = args.head_dim == kChunks * kChunkColumns;
  launch(stream,
         {{static_cast<unsigned>(args.few_items), static_cast<unsigned>(args.kv_head_count),
           few_parts(args, kTiles * kEight)},
          kCachedThreads,
          shared_bytes<kChunks, kTiles>()},
         whole ? few_kernel<kChunks, kTiles, true> : few_kernel<kChunks, kTiles, false>, args);
}

}  // namespace

bool cached_merges_few(const CachedAttention& args) { return cached_few_takes(args); }

int64_t cached_counter_bytes(const CachedAttention& args, int64_t sequence_count) {
  const int64_t parts_max = few_parts(args, kEight);
  return sequence_count * args.kv_head_count * parts_max * int64_t{sizeof(int32_t)};
}

bool cached_appends(const CachedAttention& args) {
  constexpr int kPiece = 4;  // columns
  const CachedAppend& append = args.append;
  const auto in_pieces = [](const ConstRows& rows) {
    return rows.type == ElementType::kBf16 && rows.stride % kPiece == 0 &&
           reinterpret_cast<uintptr_t>(rows.data) % sizeof(uint2) == 0;
  };
  const auto in_fours = [](const float* table) {
    return reinterpret_cast<uintptr_t>(table) % sizeof(float4) == 0;
  };
  const bool rows = !append.k.data || (in_pieces(append.k) && in_pieces(append.v));
  const bool angles = append.angle_stride % 4 == 0 && append.rotary_dim % (2 * kPiece) == 0 &&
                      in_fours(append.q_angles) && in_fours(append.k_angles);
  return cached_few_takes(args) && rows && angles;
}

bool cached_few_takes(const CachedAttention& args) {
  return !args.in_8_bits && args.cache_type == ElementType::kBf16 &&
         args.q.type == ElementType::kBf16 && args.head_dim % kEight == 0 &&
         args.head_dim <= kChunksMax * kChunkColumns &&
         reinterpret_cast<uintptr_t>(args.cache) % sizeof(uint4) == 0 &&
         reinterpret_cast<uintptr_t>(args.q.data) % sizeof(uint4) == 0 &&
         args.q.stride % kEight == 0;
}

void launch_cached_few(const LaunchStream& stream, const CachedAttention& args) {
  const int chunks = (args.head_dim - 1) / kChunkColumns + 1;
  const bool two = args.few_rows_max * args.heads > kEight;
  switch (chunks) {
    case 1:
      return two ? launch_few<1, kTilesMax>(stream, args) : launch_few<1, 1>(stream, args);
    case kChunksForTwoTiles:
      return two ? launch_few<2, kTilesMax>(stream, args) : launch_few<2, 1>(stream, args);
    case 3:
      return launch_few<3, 1>(stream, args);
    default:
      return launch_few<kChunksMax, 1>(stream, args);
  }
}

}  // namespace jige::cuda
