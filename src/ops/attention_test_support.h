// What the attention tests share: matrices of either type, and attention forward and backward in
// double precision by the definition, with its matrix of all pairs.
// Threads: none.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/rough_normal.h"
#include "ops/attention.h"
#include "ops/distance_rows.h"
#include "ops/distance_scores.h"
#include "ops/double_rows.h"
#include "tensor/cpu_device.h"

namespace jige::ops::attention_test {

using test::add_scaled;
using test::dot;

// A matrix of f32 or bf16 whose rows may stand apart, with NaN between them.
class Matrix {
 public:
  Matrix() = default;
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t gap = 0)
      : dtype_(dtype), rows_(rows), columns_(columns), stride_(columns + gap) {
    data_.resize(static_cast<size_t>(dtype_bytes(dtype, rows * stride_)));
    std::ranges::fill(data_, char(0xff));  // NaN in both types
  }

  TensorView view() { return {data_.data(), dtype_, Shape({rows_, columns_}), stride_}; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  float get(int64_t row, int64_t column) const {
    const size_t i = static_cast<size_t>(row * stride_ + column);
    if (dtype_ == DType::kBF16) return to_float(reinterpret_cast<const BFloat16*>(data_.data())[i]);
    return reinterpret_cast<const float*>(data_.data())[i];
  }
  void set(int64_t row, int64_t column, float value) {
    const size_t i = static_cast<size_t>(row * stride_ + column);
    if (dtype_ == DType::kBF16) {
      reinterpret_cast<BFloat16*>(data_.data())[i] = to_bfloat16(value);
    } else {
      reinterpret_cast<float*>(data_.data())[i] = value;
    }
  }
  void fill_normal(Rng& rng, double scale = 1.0) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) {
        set(r, c, static_cast<float>(rough_normal(rng) * scale));
      }
    }
  }
  // Rows [begin, begin + count), as a matrix without gaps.
  Matrix rows_copy(int64_t begin, int64_t count) const {
    Matrix result(dtype_, count, columns_);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < columns_; ++c) result.set(r, c, get(begin + r, c));
    }
    return result;
  }
  // Bit equality of rows.
  bool same_rows(int64_t row, const Matrix& other, int64_t other_row, int64_t count) const {
    const size_t bytes = static_cast<size_t>(dtype_bytes(dtype_, columns_));
    for (int64_t r = 0; r < count; ++r) {
      const char* a = data_.data() + dtype_bytes(dtype_, (row + r) * stride_);
      const char* b = other.data_.data() + dtype_bytes(dtype_, (other_row + r) * other.stride_);
      if (std::memcmp(a, b, bytes) != 0) return false;
    }
    return true;
  }

 private:
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t stride_ = 0;
  std::vector<char> data_;
};

inline std::vector<SequenceSpan> pack(const std::vector<int>& lengths) {
  std::vector<SequenceSpan> sequences;
  int row = 0;
  for (const int length : lengths) {
    sequences.push_back({row, length, 0, nullptr});
    row += length;
  }
  return sequences;
}

struct Inputs {
  AttentionShape shape;
  std::vector<int> lengths;
  Matrix q, k, v;
  std::vector<float> distances = {};  // what shape.distances is in
  // What shape.distance_tables is in.
  Matrix for_queries = {}, for_keys = {};
  std::vector<int32_t> row_of = {};

  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

struct InputOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t dim = 16;
  int64_t window = 0;
  std::vector<int> lengths;
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  uint64_t seed = 1;
  double cap = 0;
  bool both_sides = false;
  bool distances = false;    // scores by distance
  DistanceTable table = {};  // rows by distance, where it has any
  bool for_queries = true;   // which of its products there are
  bool for_keys = true;
};

inline void add_distance_rows(const InputOptions& options, Rng& rng, Inputs& in) {
  const int64_t tokens = *std::ranges::max_element(options.lengths);
  const DistanceRowRange range = distance_rows_of(options.table, tokens);
  const int64_t columns = options.heads * options.dim;
  for (int64_t i = 1 - tokens; i < tokens; ++i) {
    in.row_of.push_back(static_cast<int32_t>(distance_row(options.table, -i) - range.first));
  }
  AttentionDistanceTables& tables = in.shape.distance_tables;
  tables.row_of = in.row_of.data() + tokens - 1;
  if (options.for_queries) {
    in.for_queries = Matrix(options.q_dtype, range.count(), columns, 2);
    in.for_queries.fill_normal(rng);
    tables.for_queries = in.for_queries.view();
  }
  if (options.for_keys) {
    in.for_keys = Matrix(options.q_dtype, range.count(), columns, 4);
    in.for_keys.fill_normal(rng);
    tables.for_keys = in.for_keys.view();
  }
}

inline Inputs make_inputs(const InputOptions& options) {
  Inputs in;
  in.shape = {options.heads,  options.kv_heads,
              options.dim,    1.0 / std::sqrt(static_cast<double>(options.dim)),
              options.window, options.cap};
  in.shape.both_sides = options.both_sides;
  in.lengths = options.lengths;
  Rng rng(derive_key(options.seed, "attention inputs"));
  in.q = Matrix(options.q_dtype, in.rows(), options.heads * options.dim, 3);
  in.k = Matrix(options.kv_dtype, in.rows(), options.kv_heads * options.dim, 5);
  in.v = Matrix(options.kv_dtype, in.rows(), options.kv_heads * options.dim, 1);
  in.q.fill_normal(rng, 2.0);
  in.k.fill_normal(rng);
  in.v.fill_normal(rng);
  if (options.table.side > 0) add_distance_rows(options, rng, in);
  if (!options.distances) return in;
  const int64_t tokens = *std::ranges::max_element(options.lengths);
  in.shape.distance_stride = distance_count(tokens);
  for (int64_t i = 0; i < options.heads * in.shape.distance_stride; ++i) {
    in.distances.push_back(static_cast<float>(2 * rough_normal(rng)));
  }
  in.shape.distances = in.distances.data() + tokens - 1;
  return in;
}

// Attention of one sequence and head in double precision.
struct Oracle {
  int64_t length = 0, dim = 0;
  std::vector<double> dst;      // [length, dim]
  std::vector<double> lse;      // [length]
  std::vector<double> weights;  // [length, length]
  std::vector<double> slopes;   // [length, length] of the cap of scores, where there is one
  std::vector<double> grad_q, grad_k, grad_v;

  double slope(int64_t i, int64_t j) const {
    return slopes.empty() ? 1.0 : slopes[static_cast<size_t>(i * length + j)];
  }
};

// Where one sequence and query head stand in the matrices.
struct HeadPlace {
  int64_t row = 0;
  int64_t length = 0;
  int64_t head = 0;
};

// The rows of a sequence in the columns of one head.
inline std::vector<double> widened(const Matrix& from, const HeadPlace& place, int64_t dim) {
  std::vector<double> values(static_cast<size_t>(place.length * dim));
  double* value = values.data();
  for (int64_t r = 0; r < place.length; ++r) {
    for (int64_t c = 0; c < dim; ++c) *value++ = from.get(place.row + r, place.head * dim + c);
  }
  return values;
}

struct HeadInputs {
  std::vector<double> q, k, v;  // [length, dim]

  HeadInputs(const Inputs& in, const HeadPlace& place) {
    const int64_t d = in.shape.head_dim;
    HeadPlace shared = place;
    shared.head /= in.shape.head_count / in.shape.kv_head_count;
    q = widened(in.q, place, d);
    k = widened(in.k, shared, d);
    v = widened(in.v, shared, d);
  }
};

// The keys that the query at position `i` of `count` sees.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};
inline KeyRange seen_keys(const AttentionShape& shape, int64_t i, int64_t count) {
  const int64_t reach = shape.window > 0 ? shape.window : count;
  return {std::max<int64_t>(0, i - reach + 1),
          shape.both_sides ? std::min(count, i + reach) : i + 1};
}

// What the rows of tables by distance, in the columns of one head, add to products of a query and a
// key.
struct DistanceProducts {
  std::vector<double> for_queries, for_keys;  // [rows, dim], or empty

  DistanceProducts(const Inputs& in, int64_t head) {
    const int64_t d = in.shape.head_dim;
    for_queries = widened(in.for_queries, {0, in.for_queries.rows(), head}, d);
    for_keys = widened(in.for_keys, {0, in.for_keys.rows(), head}, d);
  }

  double of(const AttentionShape& shape, const HeadInputs& head, int64_t i, int64_t j) const {
    if (!shape.distance_tables.row_of) return 0;
    const int64_t d = shape.head_dim;
    const int64_t at = shape.distance_tables.row_of[j - i] * d;
    double sum = 0;
    if (!for_queries.empty()) sum += dot(head.q.data() + i * d, for_queries.data() + at, d);
    if (!for_keys.empty()) sum += dot(head.k.data() + j * d, for_keys.data() + at, d);
    return sum;
  }
};

inline Oracle oracle_forward(const Inputs& in, const HeadPlace& place) {
  const int64_t n = place.length;
  const int64_t d = in.shape.head_dim;
  const double cap = in.shape.cap;
  Oracle o{n, d};
  o.dst.assign(static_cast<size_t>(n * d), 0.0);
  o.weights.assign(static_cast<size_t>(n * n), 0.0);
  if (cap > 0) o.slopes.assign(static_cast<size_t>(n * n), 1.0);
  const HeadInputs head(in, place);
  const DistanceProducts products(in, place.head);
  for (int64_t i = 0; i < n; ++i) {
    const KeyRange seen = seen_keys(in.shape, i, n);
    double m = -std::numeric_limits<double>::infinity();
    if (in.shape.sinks) m = static_cast<double>(in.shape.sinks[place.head]);
    double* weights = o.weights.data() + i * n;
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      weights[j] = dot(head.q.data() + i * d, head.k.data() + j * d, d);
      weights[j] = (weights[j] + products.of(in.shape, head, i, j)) * in.shape.scale;
      if (in.shape.distances) {
        weights[j] += in.shape.distances[place.head * in.shape.distance_stride + j - i];
      }
      if (cap > 0) {
        const double bent = std::tanh(weights[j] / cap);
        weights[j] = cap * bent;
        o.slopes[static_cast<size_t>(i * n + j)] = 1 - bent * bent;
      }
      m = std::max(m, weights[j]);
    }
    double sum = in.shape.sinks ? std::exp(in.shape.sinks[place.head] - m) : 0;
    for (int64_t j = seen.begin; j < seen.end; ++j) sum += weights[j] = std::exp(weights[j] - m);
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      weights[j] /= sum;
      add_scaled(o.dst.data() + i * d, head.v.data() + j * d, weights[j], d);
    }
    o.lse.push_back(m + std::log(sum));
  }
  return o;
}

// The oracles of the sequences and heads of inputs, each made once: all instruction sets are held
// against the same ones. The inputs stay as they are meanwhile.
class Definition {
 public:
  explicit Definition(const Inputs& in) : in_(in) {}

  const Inputs& inputs() const { return in_; }
  const Oracle& of(const HeadPlace& place) {
    auto& oracle = oracles_[{place.row, place.length, place.head}];
    if (!oracle) oracle = oracle_forward(in_, place);
    return *oracle;
  }

 private:
  const Inputs& in_;
  std::map<std::array<int64_t, 3>, std::optional<Oracle>> oracles_;
};

// Gradients of one query head; those of keys and values are to be summed over the heads that share
// them.
inline void oracle_backward(const Inputs& in, const HeadPlace& place, const Matrix& grad_dst,
                            Oracle* o) {
  const int64_t n = place.length;
  const int64_t d = in.shape.head_dim;
  const HeadInputs head(in, place);
  const std::vector<double> grad_dst_values = widened(grad_dst, place, d);
  for (auto* grad : {&o->grad_q, &o->grad_k, &o->grad_v}) {
    grad->assign(static_cast<size_t>(n * d), 0.0);
  }
  for (int64_t i = 0; i < n; ++i) {
    const double* grad = grad_dst_values.data() + i * d;
    const double mean = dot(o->dst.data() + i * d, grad, d);
    for (int64_t j = 0; j <= i; ++j) {
      const double weight = o->weights[static_cast<size_t>(i * n + j)];
      if (weight == 0) continue;
      const double grad_weight = dot(grad, head.v.data() + j * d, d);
      add_scaled(o->grad_v.data() + j * d, grad, weight, d);
      const double grad_score = weight * (grad_weight - mean) * in.shape.scale * o->slope(i, j);
      add_scaled(o->grad_q.data() + i * d, head.k.data() + j * d, grad_score, d);
      add_scaled(o->grad_k.data() + j * d, head.q.data() + i * d, grad_score, d);
    }
  }
}

// A device with its stream.
struct Machine {
  explicit Machine(int thread_count = 1, bool queued = false)
      : device(CpuDeviceOptions{"cpu", thread_count, queued}) {
    auto made = device.make_stream();
    JIGE_CHECK(made.has_value(), "no stream");
    stream = std::move(*made);
  }
  CpuDevice device;
  std::unique_ptr<Stream> stream;
};

struct ForwardResult {
  Matrix dst, lse;
};

inline ForwardResult forward(Machine& machine, Inputs& in, DType dst_dtype = DType::kF32) {
  ForwardResult result{Matrix(dst_dtype, in.rows(), in.q.columns(), 2),
                       Matrix(DType::kF32, in.rows(), in.shape.head_count, 1)};
  attention_forward(*machine.stream, {result.dst.view(), in.q.view(), in.k.view(), in.v.view(),
                                      result.lse.view(), pack(in.lengths), in.shape});
  machine.stream->synchronize();
  return result;
}

struct Gradients {
  Matrix q, k, v;

  bool same_rows(int64_t row, const Gradients& other, int64_t other_row, int64_t count) const {
    return q.same_rows(row, other.q, other_row, count) &&
           k.same_rows(row, other.k, other_row, count) &&
           v.same_rows(row, other.v, other_row, count);
  }
};

inline Matrix make_grad_dst(const Inputs& in, DType dtype = DType::kF32) {
  Matrix grad(dtype, in.rows(), in.q.columns(), 2);
  Rng rng(derive_key(77, "grad_dst"));
  grad.fill_normal(rng);
  return grad;
}

inline Gradients backward(Machine& machine, Inputs& in, ForwardResult& result, Matrix& grad_dst,
                          DType grad_dtype = DType::kF32) {
  Gradients grads{Matrix(grad_dtype, in.rows(), in.q.columns(), 1),
                  Matrix(grad_dtype, in.rows(), in.k.columns(), 2),
                  Matrix(grad_dtype, in.rows(), in.k.columns(), 3)};
  attention_backward(
      *machine.stream,
      {grads.q.view(), grads.k.view(), grads.v.view(), grad_dst.view(), in.q.view(), in.k.view(),
       in.v.view(), result.dst.view(), result.lse.view(), pack(in.lengths), in.shape});
  machine.stream->synchronize();
  return grads;
}

inline Inputs bf16_inputs(InputOptions options) {
  options.q_dtype = options.kv_dtype = DType::kBF16;
  return make_inputs(options);
}

}  // namespace jige::ops::attention_test
