// Attention over flat rows some of which see one another, forward and backward, as training on
// images has it: against the definition in double precision, and bit for bit under threads and what
// else is in the batch.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "ops/attention.h"
#include "ops/attention_test_support.h"

namespace jige::ops::attention_test {
namespace {

using RunList = std::vector<AttentionBackward::MutualRun>;

struct MutualRuns {
  InputOptions options;
  RunList runs;  // rows of all sequences
};

// Everything that the op gives.
struct MutualResults {
  Matrix dst, lse, grad_q, grad_k, grad_v;
};

MutualResults mutual_results(const MutualRuns& test, Inputs& in, Matrix& grad_dst, int threads,
                             DType dtype) {
  CpuDevice device({.thread_count = threads});
  const auto stream = *device.make_stream();
  const int64_t rows = in.rows();
  const auto like = [&](const Matrix& other) { return Matrix(dtype, rows, other.columns()); };
  MutualResults results{like(in.q), Matrix(DType::kF32, rows, in.shape.head_count), like(in.q),
                        like(in.k), like(in.v)};
  AttentionForward forward{.dst = results.dst.view(),
                           .q = in.q.view(),
                           .k = in.k.view(),
                           .v = in.v.view(),
                           .lse = results.lse.view(),
                           .sequences = {},
                           .shape = in.shape};
  auto run = test.runs.begin();
  for (const SequenceSpan& sequence : pack(in.lengths)) {
    const int32_t end = sequence.row_begin + sequence.row_count;
    for (int32_t row = sequence.row_begin; row < end;) {
      const bool more = run != test.runs.end() && run->row_begin < end;
      const bool inside = more && run->row_begin == row;
      const int32_t next = inside ? row + run->row_count : more ? run->row_begin : end;
      forward.sequences.push_back({.row_begin = row,
                                   .row_count = next - row,
                                   .context_count = row - sequence.row_begin,
                                   .mutual = inside});
      forward.key_begins.push_back(sequence.row_begin);
      if (inside) ++run;
      row = next;
    }
  }
  attention_forward(*stream, forward);
  attention_backward(*stream, {.grad_q = results.grad_q.view(),
                               .grad_k = results.grad_k.view(),
                               .grad_v = results.grad_v.view(),
                               .grad_dst = grad_dst.view(),
                               .q = in.q.view(),
                               .k = in.k.view(),
                               .v = in.v.view(),
                               .dst = results.dst.view(),
                               .lse = results.lse.view(),
                               .sequences = pack(in.lengths),
                               .shape = in.shape,
                               .mutual = test.runs});
  stream->synchronize();
  return results;
}

Matrix gradient_of_loss(const Inputs& in, DType dtype) {
  Matrix grad(dtype, in.rows(), in.q.columns());
  Rng rng(derive_key(3, "mutual gradients"));
  grad.fill_normal(rng);
  return grad;
}

// A head of a sequence by the definition, with the gradients of its keys and values added.
struct HeadDefinition {
  std::vector<double> dst, grad_q, grad_k, grad_v;  // [length, dim]
};

void define_head(const MutualRuns& test, const Inputs& in, const Matrix& grad_dst,
                 const HeadPlace& place, HeadDefinition& defined) {
  const int64_t d = in.shape.head_dim;
  const HeadInputs head(in, place);
  const std::vector<double> grads = widened(grad_dst, place, d);
  defined.dst.assign(static_cast<size_t>(place.length * d), 0.0);
  defined.grad_q = defined.dst;
  for (int64_t i = 0; i < place.length; ++i) {
    int64_t end = i + 1;
    for (const auto& run : test.runs) {
      const int64_t begin = run.row_begin - place.row;
      if (begin <= i && i < begin + run.row_count) end = begin + run.row_count;
    }
    const int64_t window = in.shape.window;
    const int64_t first = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
    std::vector<double> weights, slopes;
    double sum = 0;
    for (int64_t j = first; j < end; ++j) {
      double score = dot(head.q.data() + i * d, head.k.data() + j * d, d) * in.shape.scale;
      double slope = 1;
      if (in.shape.cap > 0) {
        const double bent = std::tanh(score / in.shape.cap);
        score = in.shape.cap * bent;
        slope = 1 - bent * bent;
      }
      weights.push_back(std::exp(score));
      slopes.push_back(slope);
      sum += weights.back();
    }
    double* dst = defined.dst.data() + i * d;
    for (int64_t j = first; j < end; ++j) {
      double& weight = weights[static_cast<size_t>(j - first)];
      weight /= sum;
      add_scaled(dst, head.v.data() + j * d, weight, d);
    }
    const double* grad = grads.data() + i * d;
    const double mean = dot(dst, grad, d);
    for (int64_t j = first; j < end; ++j) {
      const auto at = static_cast<size_t>(j - first);
      const double change = dot(grad, head.v.data() + j * d, d) - mean;
      const double score = weights[at] * slopes[at] * change * in.shape.scale;
      add_scaled(defined.grad_q.data() + i * d, head.k.data() + j * d, score, d);
      add_scaled(defined.grad_k.data() + j * d, head.q.data() + i * d, score, d);
      add_scaled(defined.grad_v.data() + j * d, grad, weights[at], d);
    }
  }
}

void expect_mutual_definition(const MutualRuns& test, double tolerance, DType dtype = DType::kF32) {
  Inputs in = make_inputs(test.options);
  Matrix grad_dst = gradient_of_loss(in, dtype);
  const MutualResults results = mutual_results(test, in, grad_dst, 2, dtype);
  const int64_t d = in.shape.head_dim;
  const int64_t group = in.shape.head_count / in.shape.kv_head_count;
  const auto expect_rows = [&](const Matrix& actual, const std::vector<double>& expected,
                               int64_t row, int64_t column, const char* what) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      ASSERT_NEAR(actual.get(row + at / d, column + at % d), expected[i],
                  tolerance * std::max(1.0, std::abs(expected[i])))
          << what << " row " << row + at / d << " column " << column + at % d;
    }
  };
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t kv_head = 0; kv_head < in.shape.kv_head_count; ++kv_head) {
      HeadDefinition defined;
      defined.grad_k.assign(static_cast<size_t>(length * d), 0.0);
      defined.grad_v = defined.grad_k;
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        define_head(test, in, grad_dst, {row, length, head}, defined);
        ASSERT_NO_FATAL_FAILURE(expect_rows(results.dst, defined.dst, row, head * d, "dst"));
        ASSERT_NO_FATAL_FAILURE(expect_rows(results.grad_q, defined.grad_q, row, head * d, "q"));
      }
      ASSERT_NO_FATAL_FAILURE(expect_rows(results.grad_k, defined.grad_k, row, kv_head * d, "k"));
      ASSERT_NO_FATAL_FAILURE(expect_rows(results.grad_v, defined.grad_v, row, kv_head * d, "v"));
    }
    row += length;
  }
}

MutualRuns usual_runs() {
  return {.options = {.heads = 4, .kv_heads = 2, .dim = 20, .lengths = {70, 3, 90}},
          .runs = {{5, 30}, {35, 1}, {40, 25}, {73, 64}, {137, 26}}};
}

TEST(AttentionMutualBackward, MatchesTheDefinitionOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    expect_mutual_definition(usual_runs(), 4e-5);
    for (const int64_t dim : {1, 16, 33, 256}) {
      SCOPED_TRACE(dim);
      expect_mutual_definition({.options = {.heads = 3, .kv_heads = 1, .dim = dim, .lengths = {40}},
                                .runs = {{0, 17}, {20, 20}}},
                               4e-5);
    }
  }
  set_active_isa(before);
}

TEST(AttentionMutualBackward, LooksBackAsFarAsAWindowAndAheadToTheEndOfARun) {
  for (const int64_t window : {1, 9, 30, 64}) {
    SCOPED_TRACE(window);
    MutualRuns test = usual_runs();
    test.options.window = window;
    expect_mutual_definition(test, 4e-5);
  }
}

TEST(AttentionMutualBackward, MatchesTheDefinitionUnderACap) {
  MutualRuns test = usual_runs();
  test.options.cap = 3.0;
  expect_mutual_definition(test, 4e-5);
}

TEST(AttentionMutualBackward, MatchesTheDefinitionInBf16) {
  MutualRuns test = usual_runs();
  test.options.q_dtype = test.options.kv_dtype = DType::kBF16;
  expect_mutual_definition(test, 0.1, DType::kBF16);
}

TEST(AttentionMutualBackward, HasTheSameBitsAloneAndForAnyThreads) {
  const MutualRuns test = usual_runs();
  Inputs in = make_inputs(test.options);
  Matrix grad_dst = gradient_of_loss(in, DType::kF32);
  const MutualResults two = mutual_results(test, in, grad_dst, 2, DType::kF32);
  const MutualResults one = mutual_results(test, in, grad_dst, 1, DType::kF32);
  // The last sequence, by itself.
  MutualRuns last{.options = test.options, .runs = {{0, 64}, {64, 26}}};
  Inputs alone = in;
  alone.lengths = {90};
  alone.q = in.q.rows_copy(73, 90);
  alone.k = in.k.rows_copy(73, 90);
  alone.v = in.v.rows_copy(73, 90);
  Matrix grad_alone = grad_dst.rows_copy(73, 90);
  const MutualResults own = mutual_results(last, alone, grad_alone, 2, DType::kF32);
  for (const auto part : {&MutualResults::dst, &MutualResults::lse, &MutualResults::grad_q,
                          &MutualResults::grad_k, &MutualResults::grad_v}) {
    EXPECT_TRUE((two.*part).same_rows(0, one.*part, 0, in.rows()));
    EXPECT_TRUE((two.*part).same_rows(73, own.*part, 0, 90));
  }
}

}  // namespace
}  // namespace jige::ops::attention_test
