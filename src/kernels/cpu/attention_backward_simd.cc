#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/attention_load.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

struct Backward {
  const AttentionGradients& args;
  AttentionBackwardScratch scratch;
  int64_t row_floats;
};

// A range of query rows, numbered as in AttentionRows, and the tile of keys they meet.
struct Rows {
  int begin;
  int count;
};
struct Keys {
  int begin;
  int count;
};

int position_of(const Backward& backward, int row) { return row / backward.args.head_count; }

int first_key(const Backward& backward, int position) {
  const int window = backward.args.window;
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// D of a row: the sum of dst·grad_dst.
template <typename Element>
float row_dot(const Element* dst, const float* grad_dst, int dim) {
  F32x16 sum = F32x16::zero();
  for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
    sum = fma(load_lanes<F32x16>(dst + c, lanes), F32x16::load(grad_dst + c), sum);
  });
  return horizontal_sum(sum);
}

void load_rows(const Backward& backward, const Rows& rows) {
  const AttentionGradients& args = backward.args;
  const AttentionBackwardScratch& s = backward.scratch;
  const int64_t row_floats = backward.row_floats;
  for (int i = 0; i < rows.count; ++i) {
    const int64_t position = position_of(backward, rows.begin + i);
    const int head = (rows.begin + i) % args.head_count;
    const int64_t column = int64_t{head} * args.head_dim;
    const auto pack = [&](const AttentionSource& source, float scale, float* to) {
      with_elements(source, [&](const auto* src) {
        pack_rows(src + position * source.stride + column, 0, 1, args.head_dim, scale, to, 0);
      });
    };
    pack(args.q, args.scale, s.q + i * row_floats);
    pack(args.grad_dst, 1.0f, s.grad_dst + i * row_floats);
    s.lse[i] = args.lse[position * args.lse_stride + head];
    with_elements(args.dst, [&](const auto* dst) {
      s.dots[i] = row_dot(dst + position * args.dst.stride + column, s.grad_dst + i * row_floats,
                          args.head_dim);
    });
  }
}

void load_keys(const Backward& backward, const Keys& keys) {
  const AttentionGradients& args = backward.args;
  const AttentionTileScratch& tile = backward.scratch.tile;
  for (int j = 0; j < keys.count; j += 16) {
    const int count = min_of(keys.count - j, 16);
    const int64_t key = keys.begin + j;
    with_elements(args.k, [&](const auto* k) {
      const auto* src = k + key * args.k.stride;
      pack_columns(src, args.k.stride, count, args.head_dim, tile.k_columns + j * args.head_dim);
      pack_rows(src, args.k.stride, count, args.head_dim, 1.0f,
                tile.k_rows + j * backward.row_floats, backward.row_floats);
    });
    with_elements(args.v, [&](const auto* v) {
      pack_columns(v + key * args.v.stride, args.v.stride, count, args.head_dim,
                   tile.v_columns + j * args.head_dim);
    });
  }
}

// Which keys of the tile each row sees, and which rows see each key.
void find_ranges(const Backward& backward, const Rows& rows, const Keys& keys) {
  const AttentionBackwardScratch& s = backward.scratch;
  const int64_t heads = backward.args.head_count;
  for (int i = 0; i < rows.count; ++i) {
    const int position = position_of(backward, rows.begin + i);
    s.ranges[i] = {max_of(first_key(backward, position) - keys.begin, 0),
                   min_of(position + 1 - keys.begin, keys.count)};
  }
  const auto clamp_row = [&](int64_t row) {
    const int64_t offset = row - rows.begin;
    return static_cast<int>(offset < 0 ? 0 : offset > rows.count ? rows.count : offset);
  };
  for (int j = 0; j < keys.count; ++j) {
    const int64_t key = keys.begin + j;
    const int64_t window = backward.args.window > 0 ? backward.args.window : backward.args.length;
    s.key_ranges[j] = {clamp_row(key * heads), clamp_row((key + window) * heads)};
  }
}

void scores(const Backward& backward, const Rows& rows, const float* q, const float* columns,
            float* result) {
  ScoresTile<float> tile;
  tile.q = q;
  tile.q_stride = backward.row_floats;
  for (int block = 0; block < 4; ++block) {
    tile.k_columns[block] = columns + block * 16 * backward.args.head_dim;
  }
  tile.head_dim = backward.args.head_dim;
  tile.scores = result;
  tile.ranges = backward.scratch.ranges;
  scores_tile<false>(tile, rows.count);
}

// scores and products, which hold S and dP, become P and dS where a row sees a key. kCapped: scores
// have a cap.
template <bool kCapped>
void weigh(const Backward& backward, const Rows& rows) {
  const AttentionBackwardScratch& s = backward.scratch;
  const F32x16 one = F32x16::broadcast(1.0f);
  const F32x16 cap = F32x16::broadcast(backward.args.cap);
  const F32x16 reciprocal = F32x16::broadcast(kCapped ? 1.0f / backward.args.cap : 0.0f);
  for (int i = 0; i < rows.count; ++i) {
    const F32x16 lse = F32x16::broadcast(s.lse[i]);
    const F32x16 dot = F32x16::broadcast(s.dots[i]);
    for (int j = s.ranges[i].begin / 16 * 16; j < s.ranges[i].end; j += 16) {
      float* score = s.scores + i * kAttentionTileKeys + j;
      float* product = s.products + i * kAttentionTileKeys + j;
      F32x16 value = F32x16::load(score);
      F32x16 change = F32x16::load(product) - dot;
      if constexpr (kCapped) {
        const F32x16 bent = tanh(value * reciprocal);
        value = cap * bent;
        change = change * fma(-bent, bent, one);
      }
      const F32x16 weight = exp_weight(value - lse);
      weight.store(score);
      (weight * change).store(product);
    }
  }
}

ProductTile<float> product(const Backward& backward, float* out, const float* a, const float* b,
                           const AttentionRange* ranges) {
  ProductTile<float> tile;
  tile.out = out;
  tile.out_stride = backward.row_floats;
  tile.a = a;
  for (int block = 0; block < 6; ++block) tile.b[block] = b + block * 16 * backward.row_floats;
  tile.b_stride = backward.row_floats;
  tile.columns = attention_padded_dim(backward.args.head_dim);
  tile.ranges = ranges;
  return tile;
}

// What a tile of rows and a tile of keys give to the gradients. `grad_k` and `grad_v` are those of
// the tile's first key. REQUIRES: load_rows and load_keys.
struct Gradients {
  bool queries;
  float* grad_k;  // null: no gradients of keys and values
  float* grad_v;
};
void add_gradients(const Backward& backward, const Rows& rows, const Keys& keys,
                   const Gradients& gradients) {
  const AttentionBackwardScratch& s = backward.scratch;
  find_ranges(backward, rows, keys);
  scores(backward, rows, s.q, s.tile.k_columns, s.scores);
  scores(backward, rows, s.grad_dst, s.tile.v_columns, s.products);
  backward.args.cap > 0 ? weigh<true>(backward, rows) : weigh<false>(backward, rows);
  if (gradients.queries) {
    product_tile<false, false>(product(backward, s.grad_q, s.products, s.tile.k_rows, s.ranges),
                               rows.count);
  }
  if (gradients.grad_k) {
    product_tile<true, false>(
        product(backward, gradients.grad_v, s.scores, s.grad_dst, s.key_ranges), keys.count);
    product_tile<true, false>(product(backward, gradients.grad_k, s.products, s.q, s.key_ranges),
                              keys.count);
  }
}

void write_row(const AttentionTarget& target, int64_t offset, int dim, const float* src,
               float scale) {
  const F32x16 factor = F32x16::broadcast(scale);
  with_elements(target, [&](auto* dst) {
    for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
      store_lanes(F32x16::load(src + c) * factor, dst + offset + c, lanes);
    });
  });
}

// All keys that the rows see meet them, in ascending order; then grad_q of the rows is written.
// `grad_k` and `grad_v` are those of the sequence's first key, or null.
void query_rows(const Backward& backward, const Rows& rows, float* grad_k, float* grad_v) {
  const AttentionGradients& args = backward.args;
  const AttentionBackwardScratch& s = backward.scratch;
  load_rows(backward, rows);
  std::memset(s.grad_q, 0, sizeof(float) * backward.row_floats * rows.count);
  const int end = position_of(backward, rows.begin + rows.count - 1) + 1;
  const int first = first_key(backward, position_of(backward, rows.begin));
  for (int key = first / kAttentionTileKeys * kAttentionTileKeys; key < end;
       key += kAttentionTileKeys) {
    const Keys keys{key, min_of(end - key, kAttentionTileKeys)};
    load_keys(backward, keys);
    const int64_t offset = key * backward.row_floats;
    add_gradients(backward, rows, keys,
                  {true, grad_k ? grad_k + offset : nullptr, grad_v ? grad_v + offset : nullptr});
  }
  for (int i = 0; i < rows.count; ++i) {
    const int row = rows.begin + i;
    const int64_t position = position_of(backward, row) - args.grad_q_begin;
    const int64_t offset =
        position * args.grad_q.stride + int64_t{row % args.head_count} * args.head_dim;
    write_row(args.grad_q, offset, args.head_dim, s.grad_q + i * backward.row_floats, args.scale);
  }
}

void write_keys(const Backward& backward, const Keys& keys) {
  const AttentionGradients& args = backward.args;
  const AttentionBackwardScratch& s = backward.scratch;
  for (int j = 0; j < keys.count; ++j) {
    const int64_t key = keys.begin + j - args.grad_k_begin;
    if (key < 0 || keys.begin + j >= args.grad_k_end) continue;
    write_row(args.grad_k, key * args.grad_k.stride, args.head_dim,
              s.grad_k + j * backward.row_floats, 1.0f);
    write_row(args.grad_v, key * args.grad_v.stride, args.head_dim,
              s.grad_v + j * backward.row_floats, 1.0f);
  }
}

void clear_keys(const Backward& backward, int count) {
  const int64_t bytes = static_cast<int64_t>(sizeof(float)) * count * backward.row_floats;
  std::memset(backward.scratch.grad_k, 0, bytes);
  std::memset(backward.scratch.grad_v, 0, bytes);
}

Backward make_backward(const AttentionGradients& args, int key_count) {
  return {args, attention_backward_scratch(args.scratch, args.head_dim, key_count),
          attention_row_floats(args.head_dim)};
}

}  // namespace

void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,
                                int32_t row_count) noexcept {
  query_rows(make_backward(args, kAttentionTileKeys), {row_begin, row_count}, nullptr, nullptr);
}

void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept {
  const Backward backward = make_backward(args, kAttentionTileKeys);
  const AttentionBackwardScratch& s = backward.scratch;
  const Keys keys{key_begin, min_of(args.length - key_begin, kAttentionTileKeys)};
  clear_keys(backward, keys.count);
  load_keys(backward, keys);
  int64_t end = args.length;
  if (args.window > 0 && int64_t{key_begin} + keys.count - 1 + args.window < end) {
    end = int64_t{key_begin} + keys.count - 1 + args.window;
  }
  const int row_end = static_cast<int>(end * args.head_count);
  for (int row = key_begin * args.head_count; row < row_end; row += kAttentionRowsMax) {
    const Rows rows{row, min_of(row_end - row, kAttentionRowsMax)};
    load_rows(backward, rows);
    add_gradients(backward, rows, keys, {false, s.grad_k, s.grad_v});
  }
  write_keys(backward, keys);
}

void attention_backward_sequence(const AttentionGradients& args) noexcept {
  const Backward backward = make_backward(args, args.length);
  const AttentionBackwardScratch& s = backward.scratch;
  clear_keys(backward, args.length);
  const int row_count = args.length * args.head_count;
  for (int row = 0; row < row_count; row += kAttentionRowsMax) {
    query_rows(backward, {row, min_of(row_count - row, kAttentionRowsMax)}, s.grad_k, s.grad_v);
  }
  write_keys(backward, {0, args.length});
}

}  // namespace jige::cpu::JIGE_ISA_NS
