// Attention whose queries see keys behind them, too, on a GPU: against the definition in double
// precision, and bit for bit beside other sequences and whatever a row does not see.
#include <algorithm>
#include <cmath>

#include "cuda/test_device.h"
#include "ops/attention_test_support.h"

namespace jige {
namespace {

using ops::attention_test::InputOptions;
using ops::attention_test::Inputs;
using ops::attention_test::make_inputs;
using ops::attention_test::Matrix;
using ops::attention_test::Oracle;

class CudaAttentionBothSides : public CudaTest {
 protected:
  struct Results {
    Matrix dst, lse;
    bool operator==(const Results& other) const {
      return dst.same_rows(0, other.dst, 0, dst.rows()) &&
             lse.same_rows(0, other.lse, 0, lse.rows());
    }
  };

  static Inputs inputs(InputOptions options, DType dtype) {
    options.q_dtype = options.kv_dtype = dtype;
    options.both_sides = true;
    Inputs in = make_inputs(options);
    for (Matrix* matrix : {&in.q, &in.k, &in.v}) *matrix = matrix->rows_copy(0, matrix->rows());
    return in;
  }

  // Rows that stand `gap` elements apart.
  TensorView on_gpu(Matrix& matrix, int64_t gap) {
    const int64_t columns = matrix.columns();
    const Pair pair = filled(matrix.view().dtype, Shape{matrix.rows(), columns + gap});
    const TensorView from = matrix.view();
    const auto bytes = static_cast<size_t>(dtype_bytes(from.dtype, columns));
    for (int64_t row = 0; row < matrix.rows(); ++row) {
      std::memcpy(pair.host.row_range(row, row + 1).data, from.row_range(row, row + 1).data, bytes);
    }
    to_gpu(pair);
    return pair.gpu.column_range(0, columns);
  }
  Matrix on_host(const TensorView& gpu) {
    Matrix matrix(gpu.dtype, gpu.rows(), gpu.columns());
    gpu_stream_->copy(matrix.view().data, gpu.data, dtype_bytes(gpu.dtype, gpu.count()),
                      CopyKind::kDeviceToHost);
    gpu_stream_->synchronize();
    return matrix;
  }

  // What a vector holds, from an element on that others may stand in front of.
  template <typename T>
  const T* from_element(const std::vector<T>& values, DType dtype, size_t element) {
    const Pair pair = filled(dtype, Shape{std::ssize(values)});
    std::memcpy(pair.host.data, values.data(), values.size() * sizeof(T));
    to_gpu(pair);
    return pair.gpu.as<T>() + element;
  }
  // What scores get by distance there, of the longest sequence that inputs were made for.
  ops::AttentionShape shape_on_gpu(Inputs& in) {
    ops::AttentionShape shape = in.shape;
    if (shape.distances) {
      const int64_t tokens = (shape.distance_stride - ops::kDistancesBeyond) / 2;
      shape.distances = from_element(in.distances, DType::kF32, static_cast<size_t>(tokens) - 1);
    }
    ops::AttentionDistanceTables& tables = shape.distance_tables;
    if (!tables.row_of) return shape;
    tables.row_of = from_element(in.row_of, DType::kI32, in.row_of.size() / 2);
    if (tables.for_queries) tables.for_queries = on_gpu(in.for_queries, 8);
    if (tables.for_keys) tables.for_keys = on_gpu(in.for_keys, 16);
    return shape;
  }

  // A gap of 16 bytes keeps bf16 on tensor cores, where heads allow it; another does not.
  Results run(Inputs& in, int64_t gap = 8) {
    const DType dtype = in.q.view().dtype;
    const TensorView dst = filled(dtype, Shape{in.rows(), in.q.columns()}).gpu;
    const TensorView lse = filled(DType::kF32, Shape{in.rows(), in.shape.head_count}).gpu;
    ops::attention_forward(*gpu_stream_, {.dst = dst,
                                          .q = on_gpu(in.q, gap),
                                          .k = on_gpu(in.k, gap),
                                          .v = on_gpu(in.v, gap),
                                          .lse = lse,
                                          .sequences = ops::attention_test::pack(in.lengths),
                                          .shape = shape_on_gpu(in)});
    return {on_host(dst), on_host(lse)};
  }

  void expect_near_definition(Inputs& in, int64_t gap = 8) {
    SCOPED_TRACE("heads of " + std::to_string(in.shape.head_dim) + ", window " +
                 std::to_string(in.shape.window) + ", " + std::to_string(in.rows()) + " rows");
    const Results got = run(in, gap);
    const bool exact = in.q.view().dtype == DType::kF32;
    int64_t row = 0;
    for (const int length : in.lengths) {
      for (int64_t head = 0; head < in.shape.head_count; ++head) {
        const Oracle o = ops::attention_test::oracle_forward(in, {row, length, head});
        for (int64_t i = 0; i < length; ++i) {
          ASSERT_NEAR(got.lse.get(row + i, head), o.lse[static_cast<size_t>(i)],
                      exact ? 2e-5 : 2e-4)
              << "row " << i << " of " << length;
          for (int64_t c = 0; c < o.dim; ++c) {
            const double expected = o.dst[static_cast<size_t>(i * o.dim + c)];
            ASSERT_NEAR(got.dst.get(row + i, head * o.dim + c), expected,
                        (exact ? 2e-5 : 1.5e-2) * (1 + std::abs(expected)))
                << "row " << i << " of " << length << " column " << c;
          }
        }
      }
      row += length;
    }
  }
  void expect_near_definition(const InputOptions& options, DType dtype, int64_t gap = 8) {
    Inputs in = inputs(options, dtype);
    expect_near_definition(in, gap);
  }
};

TEST_F(CudaAttentionBothSides, OnTensorCoresIsNearTheDefinition) {
  for (const InputOptions& options : std::vector<InputOptions>{
           {.heads = 4, .kv_heads = 2, .dim = 32, .lengths = {1, 17, 0, 130, 64}},
           {.heads = 2, .kv_heads = 1, .dim = 64, .lengths = {63, 65, 128, 3}},
           {.heads = 3, .kv_heads = 3, .dim = 80, .lengths = {63, 66}},
           {.heads = 2, .kv_heads = 2, .dim = 96, .lengths = {65, 3}},
           {.heads = 2, .kv_heads = 1, .dim = 128, .lengths = {16, 129}},
           {.heads = 1, .kv_heads = 1, .dim = 192, .lengths = {70}},
           {.heads = 2, .kv_heads = 1, .dim = 256, .lengths = {33, 66}}}) {
    expect_near_definition(options, DType::kBF16);
  }
}

TEST_F(CudaAttentionBothSides, OnTensorCoresTakesWindowsAndCaps) {
  for (const InputOptions& options : std::vector<InputOptions>{
           {.dim = 32, .window = 1, .lengths = {70, 1}},
           {.dim = 32, .window = 65, .lengths = {300, 65, 66}},
           {.dim = 64, .window = 2, .lengths = {130, 15}},
           {.dim = 64, .window = 33, .lengths = {200}, .cap = 3},
           {.dim = 64, .window = 64, .lengths = {257, 64}},
           // Where the first or the last key of a tile is the first that a warp's row does not see.
           {.dim = 32, .window = 47, .lengths = {130}},
           {.dim = 64, .window = 63, .lengths = {130, 64}},
           {.dim = 128, .window = 17, .lengths = {210}},
           {.dim = 128, .lengths = {140}, .cap = 2},
           {.heads = 2, .dim = 256, .window = 40, .lengths = {140, 39}},
           {.dim = 80, .window = int64_t{1} << 40, .lengths = {40}}}) {
    expect_near_definition(options, DType::kBF16);
  }
}

// Of 128 queries, which many rows have.
TEST_F(CudaAttentionBothSides, InLargeTilesIsNearTheDefinition) {
  const int many = test_device_is_emulated() ? 1 : 16;
  for (const InputOptions& options : std::vector<InputOptions>{
           {.heads = 8, .kv_heads = 2, .dim = 32, .lengths = {129 * many, 2}},
           {.heads = 8, .kv_heads = 8, .dim = 64, .window = 20, .lengths = {130 * many}},
           {.heads = 9, .kv_heads = 3, .dim = 128, .lengths = {114 * many}},
           {.heads = 32, .kv_heads = 16, .dim = 256, .window = 20, .lengths = {33 * many}}}) {
    expect_near_definition(options, DType::kBF16);
  }
}

TEST_F(CudaAttentionBothSides, RowByRowIsNearTheDefinition) {
  for (const InputOptions& options : std::vector<InputOptions>{
           {.dim = 1, .lengths = {1, 2, 0, 31}},
           {.heads = 4, .kv_heads = 2, .dim = 17, .lengths = {32, 33, 1}},
           {.heads = 3, .kv_heads = 3, .dim = 32, .window = 1, .lengths = {70, 1}},
           {.heads = 2, .kv_heads = 1, .dim = 24, .window = 2, .lengths = {50, 15, 16}},
           {.heads = 7, .kv_heads = 1, .dim = 8, .window = 9, .lengths = {17, 40}},
           {.heads = 2, .kv_heads = 2, .dim = 64, .window = 33, .lengths = {50}, .cap = 3},
           {.heads = 2, .kv_heads = 1, .dim = 12, .window = 30, .lengths = {31, 30, 29}},
           {.dim = 130, .window = 5000, .lengths = {7, 20}},
           {.dim = 640, .lengths = {9}}}) {
    expect_near_definition(options, DType::kF32);
  }
  // bf16 of odd heads, and of rows that do not begin at 16 bytes.
  expect_near_definition({.heads = 3, .dim = 40, .window = 5, .lengths = {30, 18}}, DType::kBF16);
  expect_near_definition({.heads = 2, .dim = 64, .lengths = {30, 18}}, DType::kBF16, 1);
}

TEST_F(CudaAttentionBothSides, AddsScoresByDistance) {
  for (const InputOptions& options : std::vector<InputOptions>{
           {.heads = 3, .kv_heads = 3, .dim = 32, .lengths = {1, 70, 129}},
           {.heads = 2, .kv_heads = 1, .dim = 64, .window = 33, .lengths = {130, 5}},
           {.heads = 8, .kv_heads = 8, .dim = 64, .lengths = {129}},
           {.heads = 1, .dim = 256, .lengths = {33, 64}}}) {
    InputOptions with = options;
    with.distances = true;
    expect_near_definition(with, DType::kBF16);
    if (with.heads > 3) continue;  // for large tiles, by as few rows as make them
    with.dim = 20;
    with.window = std::min<int64_t>(with.window, 20);
    with.lengths = {1, 30, 45};
    expect_near_definition(with, with.window > 0 ? DType::kBF16 : DType::kF32);
  }
}

TEST_F(CudaAttentionBothSides, AddsProductsWithRowsByDistance) {
  const ops::DistanceTable near{.side = 7}, widening{.side = 8, .widens = true, .reach = 40},
      far{.side = 300};
  struct Case {
    const ops::DistanceTable& table;
    bool for_queries, for_keys;
  };
  for (const Case& one : {Case{near, true, true}, Case{widening, true, true}, Case{far, true, true},
                          Case{widening, true, false}, Case{far, false, true}}) {
    const InputOptions options{.heads = 2,
                               .kv_heads = 2,
                               .dim = 24,
                               .lengths = {12, 1, 48},
                               .table = one.table,
                               .for_queries = one.for_queries,
                               .for_keys = one.for_keys};
    expect_near_definition(options, DType::kF32);
  }
  const InputOptions wide{
      .heads = 2, .kv_heads = 2, .dim = 64, .lengths = {20, 46}, .table = {.side = 20}};
  expect_near_definition(wide, DType::kF32);
  expect_near_definition(wide, DType::kBF16);
}

TEST_F(CudaAttentionBothSides, HasSinks) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Pair sinks = random(DType::kF32, {4});
    Inputs in = inputs({.heads = 4, .kv_heads = 2, .dim = 64, .lengths = {40, 2}}, dtype);
    in.shape.sinks = sinks.gpu.as<float>();
    const Results got = run(in);
    in.shape.sinks = sinks.host.as<float>();
    const Oracle o = ops::attention_test::oracle_forward(in, {0, 40, 3});
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(got.lse.get(i, 3), o.lse[static_cast<size_t>(i)], 2e-4) << i;
    }
  }
}

// Also where what stands beside a sequence makes tiles large.
TEST_F(CudaAttentionBothSides, DoesNotSeeNeighbours) {
  const int length = test_device_is_emulated() ? 112 : 300;
  struct Case {
    int64_t dim;
    DType dtype;
    int64_t heads;
    std::vector<int64_t> windows;  // -1: with scores by distance
  };
  for (const auto& [dim, dtype, heads, windows] :
       std::vector<Case>{{32, DType::kBF16, 8, {-1}},
                         {64, DType::kBF16, 8, {0, 20}},
                         {256, DType::kBF16, 8, {20}},
                         {20, DType::kF32, 2, {20, -1}}}) {
    for (const int64_t window : windows) {
      Inputs packed = inputs({.heads = heads,
                              .kv_heads = heads / 2,
                              .dim = dim,
                              .window = std::max<int64_t>(window, 0),
                              .lengths = {13, length, test_device_is_emulated() ? 3 : 8192},
                              .distances = window < 0},
                             dtype);
      Inputs alone = packed;
      alone.lengths = {length};
      for (Matrix* matrix : {&alone.q, &alone.k, &alone.v}) *matrix = matrix->rows_copy(13, length);
      const Results among = run(packed);
      const Results expected = run(alone);
      const Results own = {among.dst.rows_copy(13, length), among.lse.rows_copy(13, length)};
      EXPECT_TRUE(own == expected) << dim << " " << window;
    }
  }
}

TEST_F(CudaAttentionBothSides, WhatARowDoesNotSeeLeavesNoTrace) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const bool by_row = dtype == DType::kF32;
    Inputs in = inputs({.heads = 2,
                        .kv_heads = 1,
                        .dim = 64,
                        .window = by_row ? 20 : 50,
                        .lengths = {by_row ? 60 : 150}},
                       dtype);
    const Results expected = run(in);
    // On tensor cores rows are seen in tiles of 64.
    for (const int64_t row :
         by_row ? std::vector<int64_t>{30} : std::vector<int64_t>{0, 63, 64, 149}) {
      Inputs other = in;
      const auto seen = ops::attention_test::seen_keys(in.shape, row, in.rows());
      for (int64_t j = 0; j < in.rows(); ++j) {
        if (seen.begin <= j && j < seen.end) continue;
        for (int64_t c = 0; c < in.k.columns(); ++c) {
          other.k.set(j, c, 100.0f);
          other.v.set(j, c, -1000.0f);
        }
      }
      const Results got = run(other);
      EXPECT_TRUE(got.dst.same_rows(row, expected.dst, row, 1)) << row;
      EXPECT_TRUE(got.lse.same_rows(row, expected.lse, row, 1)) << row;
    }
  }
}

}  // namespace
}  // namespace jige
