// Attention over a cache some of whose rows see one another, as those of an image do: against the
// definition in double precision on every instruction set, and bit for bit under chunks, threads,
// beginnings inside such rows, and beside attention that looks back alone.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention.h"
#include "ops/attention_properties_test_support.h"

namespace jige::ops::attention_test {
namespace {

// Rows [begin, end) of a sequence that see one another.
struct MutualRun {
  int begin = 0;
  int end = 0;
};

struct MutualCase {
  InputOptions options;  // of one sequence
  std::vector<MutualRun> runs;
};

// The keys that a query sees, by the definition.
KeyRange seen_in(const MutualCase& test, int i) {
  const int window = static_cast<int>(test.options.window);
  KeyRange seen{window > 0 ? std::max(0, i - window + 1) : 0, i + 1};
  for (const MutualRun& run : test.runs) {
    if (run.begin <= i && i < run.end) seen.end = run.end;
  }
  return seen;
}

// One result of one query head, and what the sizes of its values weigh.
struct Defined {
  std::vector<double> dst, magnitudes;
};

Defined defined(const AttentionShape& shape, const HeadInputs& in, const std::vector<double>& sizes,
                int64_t row, KeyRange seen) {
  const int64_t d = shape.head_dim;
  std::vector<double> scores;
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    double score = dot(in.q.data() + row * d, in.k.data() + j * d, d) * shape.scale;
    if (shape.cap > 0) score = shape.cap * std::tanh(score / shape.cap);
    scores.push_back(score);
  }
  const double largest = *std::ranges::max_element(scores);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  Defined result{std::vector<double>(static_cast<size_t>(d)),
                 std::vector<double>(static_cast<size_t>(d))};
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    const double weight = scores[static_cast<size_t>(j - seen.begin)] / sum;
    add_scaled(result.dst.data(), in.v.data() + j * d, weight, d);
    add_scaled(result.magnitudes.data(), sizes.data() + j * d, weight, d);
  }
  return result;
}

// Rows [from, to) as spans, those of a run together.
std::vector<SequenceSpan> spans_of(const MutualCase& test, int from, int to,
                                   const int32_t* blocks) {
  std::vector<SequenceSpan> spans;
  for (int row = from; row < to;) {
    int end = to;
    bool mutual = false;
    for (const MutualRun& run : test.runs) {
      if (row >= run.end) continue;
      mutual = row >= run.begin;
      end = std::min(to, mutual ? run.end : run.begin);
      break;
    }
    spans.push_back({.row_begin = row - from,
                     .row_count = end - row,
                     .context_count = row,
                     .blocks = blocks,
                     .mutual = mutual});
    row = end;
  }
  return spans;
}

// Rows [from, to) of the inputs, whose keys of before are in the cache.
void run_rows(Machine& machine, Inputs& in, Cache& cache, const MutualCase& test, int from, int to,
              Matrix& dst) {
  Matrix out(dst.view().dtype, to - from, in.q.columns());
  const auto rows = [&](Matrix& matrix) { return matrix.view().row_range(from, to); };
  const int32_t* const blocks = cache.blocks(0).data();
  kv_append(*machine.stream, cache.view(), rows(in.k), rows(in.v), {{0, to - from, from, blocks}});
  attention_cached(*machine.stream, {out.view(), rows(in.q), cache.view(),
                                     spans_of(test, from, to, blocks), in.shape});
  machine.stream->synchronize();
  for (int row = from; row < to; ++row) {
    for (int64_t c = 0; c < in.q.columns(); ++c) dst.set(row, c, out.get(row - from, c));
  }
}

Matrix run_whole(Machine& machine, Inputs& in, const MutualCase& test, DType cache_dtype) {
  Cache cache(cache_dtype, in.shape, in.lengths, 5);
  Matrix dst(DType::kF32, in.rows(), in.q.columns());
  run_rows(machine, in, cache, test, 0, in.lengths[0], dst);
  return dst;
}

std::vector<MutualCase> mutual_cases() {
  return {
      {{.heads = 1, .kv_heads = 1, .dim = 1, .lengths = {40}}, {{3, 20}}},
      {{.heads = 4, .kv_heads = 2, .dim = 17, .lengths = {130}}, {{0, 65}, {66, 67}, {70, 130}}},
      {{.heads = 3, .kv_heads = 3, .dim = 32, .window = 1, .lengths = {90}}, {{10, 80}}},
      {{.heads = 2, .kv_heads = 1, .dim = 24, .window = 17, .lengths = {300}},
       {{5, 37}, {38, 200}}},
      {{.heads = 5, .kv_heads = 1, .dim = 8, .window = 200, .lengths = {330}}, {{64, 320}}},
      {{.heads = 2, .kv_heads = 2, .dim = 64, .lengths = {200}, .cap = 3}, {{63, 129}}},
      {{.heads = 1, .kv_heads = 1, .dim = 32, .window = 600, .lengths = {1300}},
       {{500, 1030}, {1031, 1033}}}};
}

double product_error(DType cache_dtype) {
  const bool chains = cache_dtype == DType::kF32 ||
                      cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains;
  return chains ? 0 : 0x1.02p-8;  // weights are rounded to bf16
}

// A case by the definition, which no instruction set changes: made once for all of them.
class DefinedCase {
 public:
  DefinedCase(const MutualCase& test, DType cache_dtype) : test_(test), cache_dtype_(cache_dtype) {
    test_.options.q_dtype = cache_dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
    test_.options.kv_dtype = test_.options.q_dtype;
    in_ = make_inputs(test_.options);
    Inputs stored = in_;
    if (cache_dtype == DType::kI8) {
      stored.k = rounded(in_.k, in_.shape.head_dim);
      stored.v = rounded(in_.v, in_.shape.head_dim);
    }
    for (int64_t head = 0; head < in_.shape.head_count; ++head) {
      const HeadInputs inputs(stored, {0, in_.lengths[0], head});
      std::vector<double> sizes = inputs.v;
      for (double& size : sizes) size = std::abs(size);
      for (int row = 0; row < in_.lengths[0]; ++row) {
        expected_.push_back(defined(in_.shape, inputs, sizes, row, seen_in(test_, row)));
      }
    }
  }

  void expect_near() {
    SCOPED_TRACE(
        fmt::format("dim {}, cache of {}", in_.shape.head_dim, dtype_info(cache_dtype_).name));
    Machine machine(2);
    const Matrix dst = run_whole(machine, in_, test_, cache_dtype_);
    const double error = product_error(cache_dtype_);
    const int64_t rows = in_.rows();
    for (int64_t i = 0; i < std::ssize(expected_); ++i) {
      const Defined& expected = expected_[static_cast<size_t>(i)];
      for (int64_t c = 0; c < in_.shape.head_dim; ++c) {
        const auto at = static_cast<size_t>(c);
        ASSERT_NEAR(dst.get(i % rows, i / rows * in_.shape.head_dim + c), expected.dst[at],
                    expected.magnitudes[at] * error + 2e-5)
            << "row " << i % rows << " head " << i / rows << " column " << c;
      }
    }
  }

 private:
  MutualCase test_;
  DType cache_dtype_;
  Inputs in_;
  std::vector<Defined> expected_;  // head by head, its rows in order
};

TEST(AttentionMutual, MatchesTheDefinitionOnEveryInstructionSet) {
  for (const MutualCase& test : mutual_cases()) {
    for (const DType cache : {DType::kF32, DType::kBF16, DType::kI8}) {
      DefinedCase defined_case(test, cache);
      on_all_isas([&] { defined_case.expect_near(); });
    }
  }
}

// Rows run in pieces that cut no run, then once more from places inside runs, whose keys are in the
// cache by then.
TEST(AttentionMutual, GivesTheSameBitsInPiecesAndFromTheMiddleOfARun) {
  for (const MutualCase& test : mutual_cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(test.options.dim);
      InputOptions options = test.options;
      options.q_dtype = options.kv_dtype = dtype;
      Inputs in = make_inputs(options);
      Machine one;
      const Matrix expected = run_whole(one, in, test, dtype);
      const int length = in.lengths[0];
      for (const int threads : {1, 3}) {
        Machine machine(threads, true);
        Cache cache(dtype, in.shape, in.lengths, 6);
        Matrix dst(DType::kF32, in.rows(), in.q.columns());
        int done = 0;
        for (const MutualRun& run : test.runs) {
          if (run.begin > done) run_rows(machine, in, cache, test, done, run.begin, dst);
          run_rows(machine, in, cache, test, run.begin, run.end, dst);
          done = run.end;
        }
        if (done < length) run_rows(machine, in, cache, test, done, length, dst);
        EXPECT_TRUE(dst.same_rows(0, expected, 0, length)) << threads;
        for (const MutualRun& run : test.runs) {
          for (const int from : {run.begin + 1, (run.begin + run.end) / 2, run.end - 1}) {
            if (from <= run.begin || from >= run.end) continue;
            Matrix again(DType::kF32, in.rows(), in.q.columns());
            run_rows(machine, in, cache, test, from, length, again);
            EXPECT_TRUE(again.same_rows(from, expected, from, length - from)) << from;
          }
        }
      }
    }
  }
}

// Rows outside runs have the bits of attention that looks back alone, those of a run without a
// window the bits of attention to both sides over what they see.
TEST(AttentionMutual, LeavesOtherRowsAsTheyAre) {
  for (const MutualCase& test : mutual_cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(test.options.dim);
      InputOptions options = test.options;
      options.q_dtype = options.kv_dtype = dtype;
      Inputs in = make_inputs(options);
      Machine machine(2);
      const Matrix mutual = run_whole(machine, in, test, dtype);
      const Matrix back = run_whole(machine, in, {.options = options, .runs = {}}, dtype);
      int done = 0;
      for (const MutualRun& run : test.runs) {
        EXPECT_TRUE(mutual.same_rows(done, back, done, run.begin - done)) << done;
        if (run.end - run.begin > 1) {
          EXPECT_FALSE(mutual.same_rows(run.begin, back, run.begin, 1)) << run.begin;
        }
        done = run.end;
        if (options.window > 0) continue;
        Inputs seen = one_sequence(in, 0, run.end);
        seen.shape.both_sides = true;
        const Matrix both = forward(machine, seen).dst;
        EXPECT_TRUE(mutual.same_rows(run.begin, both, run.begin, run.end - run.begin));
      }
      EXPECT_TRUE(mutual.same_rows(done, back, done, in.lengths[0] - done));
    }
  }
}

TEST(AttentionMutualDeathTest, IsForCachesAlone) {
  Inputs in = make_inputs({.heads = 1, .dim = 16, .lengths = {3}});
  Machine machine;
  Matrix dst(DType::kF32, 3, 16);
  const std::vector<SequenceSpan> spans = {{.row_count = 3, .mutual = true}};
  EXPECT_DEATH(
      attention_forward(*machine.stream,
                        {dst.view(), in.q.view(), in.k.view(), in.v.view(), {}, spans, in.shape}),
      "see one another");
}

}  // namespace
}  // namespace jige::ops::attention_test
