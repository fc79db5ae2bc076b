#include "kernels/cuda/elementwise.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

struct Add {
  Rows dst;
  ConstRows a, b;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto packed_a = load_packed<W>(a, row, column);
    const auto packed_b = load_packed<W>(b, row, column);
    float x[W], y[W];
    packed_a.unpack(a.type, x);
    packed_b.unpack(b.type, y);
    for (int i = 0; i < W; ++i) x[i] += y[i];
    store_vector(dst, row, column, x);
  }
};

struct Scale {
  Rows dst;
  ConstRows src;
  float factor;
  const float* factor_at;  // null: `factor`

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const float by = factor_at ? *factor_at : factor;
    float x[W];
    load_packed<W>(src, row, column).unpack(src.type, x);
    for (int i = 0; i < W; ++i) x[i] *= by;
    store_vector(dst, row, column, x);
  }
};

struct ScaleColumns {
  Rows dst;
  ConstRows src;
  const float* factor;
  const float* addend;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float x[W];
    load_packed<W>(src, row, column).unpack(src.type, x);
    for (int i = 0; i < W; ++i) {
      const float by = factor ? factor[column + i] : 1.0f;
      x[i] = addend ? fmaf(x[i], by, addend[column + i]) : x[i] * by;
    }
    store_vector(dst, row, column, x);
  }
};

struct SoftCap {
  Rows data;
  float cap, reciprocal;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float x[W];
    load_packed<W>({data.data, data.type, data.stride}, row, column).unpack(data.type, x);
    for (int i = 0; i < W; ++i) x[i] = cap * tanhf(x[i] * reciprocal);
    store_vector(data, row, column, x);
  }
};

// Columns are bytes.
struct Zero {
  static constexpr int kBytes = 16;
  unsigned char* data;
  int64_t stride;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    unsigned char* const to = data + row * stride + column;
    if constexpr (W == kBytes) {
      *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
    } else {
      *to = 0;
    }
  }
};

void launch_scale(const LaunchStream& stream, const Scale& op, int64_t rows, int64_t columns) {
  const Extent extent = merged_extent(rows, columns, op.dst, op.src);
  launch_elementwise(stream, extent, aligned(extent.rows, op.dst, op.src), op);
}

}  // namespace

void add(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& a,
         const cpu::ConstRows& b, int64_t rows, int64_t columns) {
  const Extent extent = merged_extent(rows, columns, dst, a, b);
  launch_elementwise(stream, extent, aligned(extent.rows, dst, a, b), Add{dst, a, b});
}

void scale(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& src,
           float factor, int64_t rows, int64_t columns) {
  launch_scale(stream, {dst, src, factor, nullptr}, rows, columns);
}

void scale_by(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& src,
              const float* factor, int64_t rows, int64_t columns) {
  launch_scale(stream, {dst, src, 0.0f, factor}, rows, columns);
}

void scale_columns(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& src,
                   const float* factor, const float* addend, int64_t rows, int64_t columns) {
  // Rows stay apart, for their columns have numbers.
  launch_elementwise(stream, {rows, columns}, aligned(rows, dst, src),
                     ScaleColumns{dst, src, factor, addend});
}

void soft_cap(const LaunchStream& stream, const cpu::Rows& data, float cap, int64_t rows,
              int64_t columns) {
  const Extent extent = merged_extent(rows, columns, data);
  launch_elementwise(stream, extent, aligned(extent.rows, data), SoftCap{data, cap, 1.0f / cap});
}

void zero_rows(const LaunchStream& stream, void* data, int64_t stride_bytes, int64_t rows,
               int64_t bytes) {
  const bool vectors = aligned(data) && stride_bytes % Zero::kBytes == 0;
  launch_elementwise<Zero::kBytes>(stream, {rows, bytes}, vectors,
                                   Zero{static_cast<unsigned char*>(data), stride_bytes});
}

}  // namespace jige::cuda
