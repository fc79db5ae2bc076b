#include "ops/attention_cuda.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/attention_flat.h"
#include "ops/attention_schedule.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// What the rows of a tile attend to, queries to the keys before them or on both sides, and keys to
// the queries behind.
enum class Sees { kBefore, kBehind, kBoth };

// How many rows of a sequence the rows [begin, end) see.
int32_t seen_rows(const SequenceSpan& sequence, int32_t begin, int32_t end, int32_t window,
                  Sees sees) {
  const int64_t length = sequence.row_count;
  const int64_t reach = window > 0 ? window - 1 : length;
  const int64_t first = sees == Sees::kBehind ? begin : std::max<int64_t>(0, begin - reach);
  const int64_t last = sees == Sees::kBefore ? end : std::min<int64_t>(length, end + reach);
  return static_cast<int32_t>(last - first);
}

// Tiles of `rows` rows of the sequences, on the device. Those that see most come first, so that the
// last to run are short.
cuda::AttentionTiles upload_tiles(Stream& stream, const std::vector<SequenceSpan>& sequences,
                                  int32_t rows, int32_t window, Sees sees) {
  struct Costly {
    cuda::AttentionTile tile;
    int32_t seen;
  };
  std::vector<Costly> costly;
  for (const SequenceSpan& sequence : sequences) {
    for (int32_t begin = 0; begin < sequence.row_count; begin += rows) {
      const int32_t end = std::min(begin + rows, sequence.row_count);
      costly.push_back({{sequence.row_begin, sequence.row_count, begin},
                        seen_rows(sequence, begin, end, window, sees)});
    }
  }
  std::stable_sort(costly.begin(), costly.end(),
                   [](const Costly& a, const Costly& b) { return a.seen > b.seen; });
  std::vector<cuda::AttentionTile> tiles;
  tiles.reserve(costly.size());
  for (const Costly& one : costly) tiles.push_back(one.tile);
  const auto count = static_cast<int64_t>(tiles.size());
  if (count == 0) return {nullptr, 0, rows};
  const auto bytes = count * static_cast<int64_t>(sizeof(cuda::AttentionTile));
  return {static_cast<const cuda::AttentionTile*>(as_cuda(stream).upload(tiles.data(), bytes)),
          count, rows};
}

// The window, 0 where every query sees all before it.
int32_t window_of(const AttentionShape& shape, const std::vector<SequenceSpan>& sequences) {
  const bool hides = std::any_of(sequences.begin(), sequences.end(),
                                 [&](const SequenceSpan& s) { return s.row_count > shape.window; });
  return hides ? attention_window(shape) : 0;
}

cuda::FlatAttention flat_attention(const AttentionShape& shape,
                                   const std::vector<SequenceSpan>& sequences, const TensorView& q,
                                   const TensorView& k, const TensorView& v) {
  return {.q = const_rows_of(q),
          .k = const_rows_of(k),
          .v = const_rows_of(v),
          .head_count = static_cast<int32_t>(shape.head_count),
          .kv_head_count = static_cast<int32_t>(shape.kv_head_count),
          .head_dim = static_cast<int32_t>(shape.head_dim),
          .window = window_of(shape, sequences),
          .scale = static_cast<float>(shape.scale),
          .cap = static_cast<float>(shape.cap),
          .sinks = shape.sinks};
}

cuda::AttentionDistances distances_of(const AttentionShape& shape) {
  const AttentionDistanceTables& tables = shape.distance_tables;
  cuda::AttentionDistances distances = {
      .scores = shape.distances, .stride = shape.distance_stride, .row_of = tables.row_of};
  if (tables.for_queries) distances.for_queries = const_rows_of(tables.for_queries);
  if (tables.for_keys) distances.for_keys = const_rows_of(tables.for_keys);
  return distances;
}

}  // namespace

void attention_forward_on_gpu(Stream& stream, const AttentionForward& args) {
  cuda::FlatAttentionForward flat{
      .attention = flat_attention(args.shape, args.sequences, args.q, args.k, args.v),
      .dst = rows_of(args.dst),
      .lse = args.lse ? args.lse.as<float>() : nullptr,
      .lse_stride = args.lse.row_stride,
      .rows = args.q.rows(),
      .tiles = {},
      .both_sides = args.shape.both_sides,
      .distances = distances_of(args.shape),
  };
  const cuda::LaunchStream launches = launch_stream(stream);
  flat.tiles = upload_tiles(stream, args.sequences, cuda::attention_forward_rows(launches, flat),
                            flat.attention.window, flat.both_sides ? Sees::kBoth : Sees::kBefore);
  cuda::attention_forward(launches, flat);
}

void attention_backward_on_gpu(Stream& stream, const AttentionBackward& args) {
  const int64_t rows = args.q.rows();
  cuda::FlatAttentionBackward flat{
      .attention = flat_attention(args.shape, args.sequences, args.q, args.k, args.v),
      .dst = const_rows_of(args.dst),
      .grad_dst = const_rows_of(args.grad_dst),
      .lse = args.lse.as<float>(),
      .lse_stride = args.lse.row_stride,
      .grad_q = rows_of(args.grad_q),
      .grad_k = rows_of(args.grad_k),
      .grad_v = rows_of(args.grad_v),
      .rows = rows,
      .scratch = nullptr,
      .query_tiles = {},
      .key_tiles = {},
  };
  const cuda::LaunchStream launches = launch_stream(stream);
  const cuda::AttentionBackwardRows tile_rows = cuda::attention_backward_rows(launches, flat);
  flat.query_tiles =
      upload_tiles(stream, args.sequences, tile_rows.queries, flat.attention.window, Sees::kBefore);
  flat.key_tiles =
      upload_tiles(stream, args.sequences, tile_rows.keys, flat.attention.window, Sees::kBehind);
  const int64_t floats = cuda::attention_backward_floats(rows, args.shape.head_count);
  flat.scratch =
      static_cast<float*>(as_cuda(stream).scratch(floats * static_cast<int64_t>(sizeof(float))));
  cuda::attention_backward(launches, flat);
}

}  // namespace jige::ops
