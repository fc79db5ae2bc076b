#include "kernels/cuda/head_parts.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

ConstRows as_const(const Rows& rows) { return {rows.data, rows.type, rows.stride}; }

template <int W>
__device__ void copy_columns(const Rows& dst, int64_t to, const ConstRows& src, int64_t from,
                             int64_t row) {
  float x[W];
  load_packed<W>(src, row, from).unpack(src.type, x);
  store_vector(dst, row, to, x);
}
template <int W>
__device__ void clear_columns(const Rows& dst, int64_t to, int64_t row) {
  const float x[W] = {};
  store_vector(dst, row, to, x);
}

// Columns are those of keys and, behind them, of values.
struct Join {
  Rows keys, values;
  ConstRows parts, shared;
  int64_t heads, own, width, value;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const Divided of = divide(column, width);
    const int64_t i = of.remainder;
    if (of.quotient < heads) {
      const int64_t part = of.quotient * (own + value);
      if (i < own) return copy_columns<W>(keys, column, parts, part + i, row);
      return copy_columns<W>(keys, column, shared, i - own, row);
    }
    const int64_t head = of.quotient - heads;
    const int64_t to = head * width + i;
    if (i >= value) return clear_columns<W>(values, to, row);
    copy_columns<W>(values, to, parts, head * (own + value) + own + i, row);
  }
};

// Columns are those of parts and, behind them, of what is shared.
struct Split {
  ConstRows keys, values;
  Rows parts, shared;
  int64_t heads, own, width, value;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const Divided of = divide(column, own + value);
    if (of.quotient >= heads) return sum<W>(row, column - heads * (own + value));
    const int64_t i = of.remainder;
    if (i < own) return copy_columns<W>(parts, column, keys, of.quotient * width + i, row);
    copy_columns<W>(parts, column, values, of.quotient * width + i - own, row);
  }
  template <int W>
  __device__ void sum(int64_t row, int64_t column) const {
    float total[W] = {};
#pragma unroll 4
    for (int64_t head = 0; head < heads; ++head) {
      float x[W];
      load_packed<W>(keys, row, head * width + own + column).unpack(keys.type, x);
      for (int i = 0; i < W; ++i) total[i] += x[i];
    }
    store_vector(shared, row, column, total);
  }
};

// Columns are those that are written, of all heads.
struct Fit {
  cpu::HeadColumnsArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const Divided of = divide(column, args.dst_columns - args.dst_first);
    const int64_t to = of.quotient * args.dst_columns + args.dst_first + of.remainder;
    const int64_t from = args.src_first + of.remainder;
    if (from >= args.src_columns) return clear_columns<W>(args.dst, to, row);
    copy_columns<W>(args.dst, to, args.src, of.quotient * args.src_columns + from, row);
  }
};

// Whether no vector reaches over the end of one of these ranges.
template <typename... Counts>
bool parts_in_vectors(Counts... counts) {
  return ((counts % kVector == 0) && ...);
}

bool parts_in_vectors(const cpu::HeadPartsArgs& args, int64_t rows) {
  return parts_in_vectors(args.own, args.shared_columns, args.value_columns) &&
         aligned(rows, args.keys, args.values, args.parts, args.shared);
}

}  // namespace

void join_heads(const LaunchStream& stream, const cpu::HeadPartsArgs& args, int64_t rows) {
  const int64_t width = args.own + args.shared_columns;
  launch_elementwise(stream, {rows, 2 * args.head_count * width}, parts_in_vectors(args, rows),
                     Join{args.keys, args.values, as_const(args.parts), as_const(args.shared),
                          args.head_count, args.own, width, args.value_columns});
}

void split_heads(const LaunchStream& stream, const cpu::HeadPartsArgs& args, int64_t rows) {
  const int64_t columns = args.head_count * (args.own + args.value_columns) + args.shared_columns;
  launch_elementwise(
      stream, {rows, columns}, parts_in_vectors(args, rows),
      Split{as_const(args.keys), as_const(args.values), args.parts, args.shared, args.head_count,
            args.own, args.own + args.shared_columns, args.value_columns});
}

void fit_heads(const LaunchStream& stream, const cpu::HeadColumnsArgs& args, int64_t rows) {
  const bool vectors =
      parts_in_vectors(args.dst_columns, args.src_columns, args.dst_first, args.src_first) &&
      aligned(rows, args.dst, args.src);
  launch_elementwise(stream, {rows, args.head_count * (args.dst_columns - args.dst_first)}, vectors,
                     Fit{args});
}

}  // namespace jige::cuda
