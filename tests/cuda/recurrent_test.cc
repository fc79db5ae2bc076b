// Recurrent layers' ops on a GPU, beside those of the CPU.
#include <numeric>

#include "cuda/test_device.h"
#include "kernels/cuda/delta_rule.h"
#include "ops/causal_conv.h"
#include "ops/delta_gates.h"
#include "ops/delta_rule.h"
#include "ops/kernel_rows.h"
#include "ops/recurrent_spans.h"

namespace jige {
namespace {

using Spans = std::vector<ops::SequenceSpan>;

Spans spans_of(const std::vector<int32_t>& lengths) {
  Spans spans;
  int32_t row = 0;
  for (const int32_t length : lengths) {
    spans.push_back({.row_begin = row, .row_count = length});
    row += length;
  }
  return spans;
}

class CudaRecurrent : public CudaTest {
 protected:
  static Pair columns(const Pair& pair, int64_t begin, int64_t end) {
    return {pair.host.column_range(begin, end), pair.gpu.column_range(begin, end)};
  }
  // Columns [first, first + count) of a random tensor that is wider by a few.
  Pair within(DType dtype, int64_t rows, int64_t count, int64_t first, float deviation = 1.0f) {
    const Pair wide = random(dtype, {rows, first + count + (first + count) % 2}, deviation);
    return columns(wide, first, first + count);
  }
  // Calls run(stream, side) on both.
  template <typename Run>
  void on_both(Run run) {
    run(*cpu_stream_, &Pair::host);
    run(*gpu_stream_, &Pair::gpu);
  }
  // Of a range of columns.
  std::vector<float> gpu_columns(const TensorView& gpu) {
    std::vector<float> all;
    for (int64_t row = 0; row < gpu.rows(); ++row) {
      const std::vector<float> one = gpu_values(gpu.row_range(row, row + 1));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  struct ConvCase {
    std::vector<int32_t> lengths;
    int64_t columns;
    ops::CausalConvShape shape;
    bool bias;
    DType dtype;
    int64_t first = 0;  // column of src

    int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  };
  static std::vector<ConvCase> conv_cases() {
    return {{{5, 1, 0, 19}, 6, {4, true}, true, DType::kF32, 2},
            {{9, 3}, 70, {4, false}, false, DType::kBF16},
            {{17, 2}, 5, {3, true}, true, DType::kBF16, 1},
            {{12}, 4, {8, true}, false, DType::kF32},
            {{2, 8}, 3, {1, false}, true, DType::kF32}};
  }

  struct RuleCase {
    std::vector<int32_t> lengths;
    ops::DeltaRuleShape shape;
    DType dtype = DType::kF32;
    bool skips = false;
    float decay_least = 0.0f;

    int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
    int64_t keys() const { return shape.key_heads * shape.key_dim; }
    int64_t values() const { return shape.value_heads * shape.value_dim; }
  };
  // Few tokens and many, columns and rows of several widths.
  static std::vector<RuleCase> rule_cases() {
    return {{{19, 0, 1, 3}, {2, 4, 7, 9, true}},
            {{3, 17}, {2, 4, 7, 9, false}, DType::kF32, true},
            {{9}, {1, 1, 72, 70, true}, DType::kBF16},
            {{5, 4}, {1, 2, 130, 16, false}, DType::kBF16},
            {{6}, {1, 1, 130, 80, true}}};
  }
  struct RuleOperands {
    Pair qkv, q, k, v, log_decay, rate, skip;
  };
  RuleOperands operands(const RuleCase& test) {
    RuleOperands in;
    const float spread = test.shape.corrects ? 1.0f : 0.3f;
    in.qkv = random(test.dtype, {test.rows(), 2 * test.keys() + test.values() + 1}, spread);
    in.q = columns(in.qkv, 0, test.keys());
    in.k = columns(in.qkv, test.keys(), 2 * test.keys());
    in.v = columns(in.qkv, 2 * test.keys(), 2 * test.keys() + test.values());
    const Shape heads{test.rows(), test.shape.value_heads};
    in.log_decay = random(DType::kF32, heads, 0.2f);
    in.rate = random(DType::kF32, heads, 0.5f);
    for (int64_t i = 0; i < in.rate.host.count(); ++i) {
      set(in.log_decay.host, i, -test.decay_least - std::abs(get(in.log_decay.host, i)));
      set(in.rate.host, i, std::abs(get(in.rate.host, i)));
    }
    to_gpu(in.log_decay);
    to_gpu(in.rate);
    if (test.skips) in.skip = random(DType::kF32, {test.shape.value_heads});
    return in;
  }
  static ops::DeltaRuleForward rule(const RuleCase& test, const RuleOperands& in,
                                    TensorView Pair::*at) {
    return {.dst = {},
            .q = in.q.*at,
            .k = in.k.*at,
            .v = in.v.*at,
            .log_decay = in.log_decay.*at,
            .rate = in.rate.*at,
            .skip = in.skip.*at,
            .states = {},
            .sequences = spans_of(test.lengths),
            .shape = test.shape};
  }
};

TEST_F(CudaRecurrent, ConvolutionsAndTheirGradientsAreThoseOfTheCpu) {
  for (const ConvCase& test : conv_cases()) {
    const std::string what = fmt::format("{} taps, {} columns", test.shape.kernel, test.columns);
    const Pair src = within(test.dtype, test.rows(), test.columns, test.first);
    const Pair weight = random(DType::kF32, {test.columns, test.shape.kernel});
    const Pair bias = test.bias ? random(DType::kF32, {test.columns}) : Pair{};
    const Pair dst = filled(test.dtype, {test.rows(), test.columns});
    const Pair grad_dst = random(test.dtype, {test.rows(), test.columns});
    const Pair grad_src = filled(test.dtype, {test.rows(), test.columns});
    const Pair grad_weight = random(DType::kF32, {test.columns, test.shape.kernel});
    const Pair grad_bias = test.bias ? random(DType::kF32, {test.columns}) : Pair{};
    on_both([&](Stream& stream, TensorView Pair::*at) {
      const Spans spans = spans_of(test.lengths);
      ops::causal_conv_forward(stream, {.dst = dst.*at,
                                        .src = src.*at,
                                        .weight = weight.*at,
                                        .bias = bias.*at,
                                        .states = {},
                                        .sequences = spans,
                                        .shape = test.shape});
      ops::causal_conv_backward_input(stream, {.grad_src = grad_src.*at,
                                               .grad_products = grad_dst.*at,
                                               .grad_dst = grad_dst.*at,
                                               .src = src.*at,
                                               .weight = weight.*at,
                                               .bias = bias.*at,
                                               .sequences = spans,
                                               .shape = test.shape});
      ops::causal_conv_backward_weight(stream, {.grad_weight = grad_weight.*at,
                                                .grad_bias = grad_bias.*at,
                                                .grad_products = grad_dst.*at,
                                                .src = src.*at,
                                                .sequences = spans,
                                                .shape = test.shape});
    });
    const double tolerance = test.dtype == DType::kF32 ? 2e-6 : 0.01;
    if (test.shape.silu) {
      expect_near(dst, tolerance, what);
    } else {
      expect_equal(dst, what);
    }
    expect_near(grad_dst, tolerance, what + ", products");
    expect_near(grad_src, 4 * tolerance, what + ", sources");
    expect_near(grad_weight, 10 * tolerance, what + ", weights");
    if (test.bias) expect_near(grad_bias, 10 * tolerance, what + ", biases");
  }
}

// Pieces of two sequences, which go on in their states.
TEST_F(CudaRecurrent, ConvolutionsGoOnWhereTheyWere) {
  for (const ConvCase& test : conv_cases()) {
    const int64_t kept = test.shape.kernel - 1;
    const Pair src = random(test.dtype, {15, test.columns});
    const Pair weight = random(DType::kF32, {test.columns, test.shape.kernel});
    const Pair dst = filled(test.dtype, {15, test.columns});
    const Pair states = filled(test.dtype, {3, kept * test.columns});
    const Pair whole = filled(test.dtype, {15, test.columns});
    on_both([&](Stream& stream, TensorView Pair::*at) {
      const auto run = [&](const TensorView& to, const TensorView& with, const Spans& spans) {
        ops::causal_conv_forward(stream, {.dst = to,
                                          .src = src.*at,
                                          .weight = weight.*at,
                                          .bias = {},
                                          .states = with,
                                          .sequences = spans,
                                          .shape = test.shape});
      };
      run(dst.*at, states.*at,
          {{.row_begin = 0, .row_count = 1, .state = 2}, {.row_begin = 5, .row_count = 9}});
      run(dst.*at, states.*at,
          {{.row_begin = 14, .row_count = 1, .context_count = 9},
           {.row_begin = 1, .row_count = 2, .context_count = 1, .state = 2}});
      run(dst.*at, states.*at, {{.row_begin = 3, .row_count = 2, .context_count = 3, .state = 2}});
      run(whole.*at, {}, {{.row_begin = 0, .row_count = 5}, {.row_begin = 5, .row_count = 10}});
    });
    EXPECT_EQ(gpu_values(dst.gpu), gpu_values(whole.gpu)) << test.columns;
    expect_near(dst, test.dtype == DType::kF32 ? 2e-6 : 0.01);
    if (kept == 0) continue;
    for (const int64_t slot : {0, 2}) {
      EXPECT_EQ(gpu_values(states.gpu.row_range(slot, slot + 1)),
                values(states.host.row_range(slot, slot + 1)));
    }
  }
}

TEST_F(CudaRecurrent, GatesAndTheirGradientsAreThoseOfTheCpu) {
  for (const bool has_b : {true, false}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Shape shape{5, 3};
      const Pair a = within(dtype, 5, 3, 1, 4.0f);
      const Pair b = has_b ? within(dtype, 5, 3, 0, 3.0f) : Pair{};
      const Pair log_scale = random(DType::kF32, {3});
      const Pair biases = filled(DType::kF32, {3});
      for (int64_t h = 0; h < 3; ++h) set(biases.host, h, static_cast<float>(14 * h - 14));
      to_gpu(biases);
      const Pair grad_log_decay = random(DType::kF32, shape);
      const Pair grad_rate = random(DType::kF32, shape);
      const Pair log_decay = filled(DType::kF32, shape), rate = filled(DType::kF32, shape);
      const Pair grad_a = filled(dtype, shape), grad_b = filled(dtype, shape);
      const Pair scales = filled(DType::kF32, shape), slopes = filled(DType::kF32, shape);
      on_both([&](Stream& stream, TensorView Pair::*at) {
        const ops::DeltaGates gates = {.log_decay = log_decay.*at,
                                       .rate = rate.*at,
                                       .a = a.*at,
                                       .b = b.*at,
                                       .log_scale = log_scale.*at,
                                       .bias = biases.*at,
                                       .rate_scale = dtype == DType::kF32 ? 2.0f : 1.0f};
        ops::delta_gates_forward(stream, gates);
        ops::delta_gates_backward(stream, {.grad_a = grad_a.*at,
                                           .grad_b = has_b ? grad_b.*at : TensorView(),
                                           .slopes_scale = scales.*at,
                                           .slopes_bias = slopes.*at,
                                           .grad_log_decay = grad_log_decay.*at,
                                           .grad_rate = grad_rate.*at,
                                           .forward = gates});
      });
      expect_near(log_decay, 2e-6, "log decay");
      expect_near(rate, 2e-6, "rate");
      const double tolerance = dtype == DType::kF32 ? 2e-6 : 0.01;
      expect_near(grad_a, tolerance, "gradient of a");
      if (has_b) expect_near(grad_b, tolerance, "gradient of b");
      expect_near(scales, 3e-6, "slopes of scales");
      expect_near(slopes, 3e-6, "slopes of biases");
    }
  }
}

TEST_F(CudaRecurrent, RulesAreThoseOfTheCpuAndGoOnWhereTheyWere) {
  for (const RuleCase& test : rule_cases()) {
    const std::string what =
        fmt::format("{} rows of {} and {}", test.rows(), test.shape.key_dim, test.shape.value_dim);
    const RuleOperands in = operands(test);
    const Pair dst = filled(test.dtype, {test.rows(), test.values()});
    const Pair whole = filled(test.dtype, {test.rows(), test.values()});
    const auto slots = static_cast<int64_t>(test.lengths.size()) + 1;
    const Pair states = filled(DType::kF32, {slots, test.values() * test.shape.key_dim});
    on_both([&](Stream& stream, TensorView Pair::*at) {
      ops::DeltaRuleForward args = rule(test, in, at);
      args.dst = whole.*at;
      ops::delta_rule_forward(stream, args);
      args.dst = dst.*at;
      args.states = states.*at;
      // In two pieces each, of one row and the rest.
      const Spans spans = args.sequences;
      for (const int piece : {0, 1}) {
        for (size_t i = 0; i < spans.size(); ++i) {
          const int32_t first = std::min(spans[i].row_count, 1);
          ops::SequenceSpan& span = args.sequences[i];
          span.state = static_cast<int32_t>(spans.size() - i);
          span.row_begin = spans[i].row_begin + piece * first;
          span.row_count = piece == 0 ? first : spans[i].row_count - first;
          span.context_count = piece * first;
        }
        ops::delta_rule_forward(stream, args);
      }
    });
    EXPECT_EQ(gpu_values(dst.gpu), gpu_values(whole.gpu)) << what;
    expect_near(dst, test.dtype == DType::kF32 ? 3e-6 : 0.01, what);
    for (size_t i = 0; i < test.lengths.size(); ++i) {
      if (test.lengths[i] == 0) continue;
      const auto slot = static_cast<int64_t>(test.lengths.size() - i);
      const Pair state = {states.host.row_range(slot, slot + 1),
                          states.gpu.row_range(slot, slot + 1)};
      expect_near(state, 3e-6, what + ", states");
    }
  }
}

// Heads that forget most at each token have gradients of decays that are as small: they are as near
// for their size.
TEST_F(CudaRecurrent, GradientsOfRulesAreThoseOfTheCpu) {
  std::vector<RuleCase> cases = rule_cases();
  cases.push_back({{12}, {1, 2, 7, 9, true}, DType::kF32, false, 12.0f});
  cases.push_back({{12}, {1, 2, 7, 9, false}, DType::kF32, true, 12.0f});
  for (const RuleCase& test : cases) {
    const std::string what =
        fmt::format("{} rows of {} and {}", test.rows(), test.shape.key_dim, test.shape.value_dim);
    const RuleOperands in = operands(test);
    const Shape heads{test.rows(), test.shape.value_heads};
    const Pair grad_dst = within(test.dtype, test.rows(), test.values(), 1);
    const Pair grad_q = filled(test.dtype, {test.rows(), test.keys()});
    const Pair grad_k = filled(test.dtype, {test.rows(), test.keys()});
    const Pair grad_v = filled(test.dtype, {test.rows(), test.values()});
    const Pair grad_log_decay = filled(DType::kF32, heads), grad_rate = filled(DType::kF32, heads);
    const Pair slopes = filled(DType::kF32, heads);
    on_both([&](Stream& stream, TensorView Pair::*at) {
      ops::delta_rule_backward(stream, {.grad_q = grad_q.*at,
                                        .grad_k = grad_k.*at,
                                        .grad_v = grad_v.*at,
                                        .grad_log_decay = grad_log_decay.*at,
                                        .grad_rate = grad_rate.*at,
                                        .slopes_skip = test.skips ? slopes.*at : TensorView(),
                                        .grad_dst = grad_dst.*at,
                                        .forward = rule(test, in, at)});
    });
    const double tolerance = test.dtype == DType::kF32 ? 1e-5 : 0.01;
    expect_near(grad_q, tolerance, what + ", queries");
    expect_near(grad_k, tolerance, what + ", keys");
    expect_near(grad_v, tolerance, what + ", values");
    const std::vector<float> decays = values(grad_log_decay.host);
    const std::vector<float> got = gpu_values(grad_log_decay.gpu);
    float most = 0;
    for (const float x : decays) most = std::max(most, std::abs(x));
    EXPECT_EQ(most<1e-3f, test.decay_least> 0);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], decays[i], 1e-5 * most) << what << ", decay " << i;
    }
    expect_near(grad_rate, 1e-5, what + ", rates");
    if (test.skips) expect_near(slopes, 1e-5, what + ", skips");
  }
}

TEST_F(CudaRecurrent, GradientsOfRulesDoNotDependOnHowManyHeadsAreTakenAtOnce) {
  const RuleCase test = {{9, 2}, {3, 6, 7, 9, true}};
  const RuleOperands in = operands(test);
  const Pair grad_dst = random(test.dtype, {11, test.values()});
  std::vector<std::vector<float>> expected;
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{1}}) {
    const Pair grads = filled(DType::kF32, {11, 2 * test.keys() + test.values() + 12});
    const auto part = [&](int64_t begin, int64_t count) {
      return ops::rows_of(grads.gpu.column_range(begin, begin + count));
    };
    const int64_t keys = test.keys();
    const cuda::DeltaBackward args = {
        .rule = {.in = {.q = ops::const_rows_of(in.q.gpu),
                        .k = ops::const_rows_of(in.k.gpu),
                        .v = ops::const_rows_of(in.v.gpu),
                        .log_decay = ops::const_rows_of(in.log_decay.gpu),
                        .rate = ops::const_rows_of(in.rate.gpu),
                        .skip = nullptr,
                        .corrects = true,
                        .heads_per_key = 2,
                        .key_dim = 7,
                        .value_dim = 9},
                 .grad_q = part(0, keys),
                 .grad_k = part(keys, keys),
                 .grad_v = part(2 * keys, test.values()),
                 .grad_log_decay = part(2 * keys + test.values(), 6),
                 .grad_rate = part(2 * keys + test.values() + 6, 6),
                 .slopes_skip = {},
                 .grad_dst = ops::const_rows_of(grad_dst.gpu)},
        .spans = ops::send_recurrent_spans(*gpu_stream_, spans_of(test.lengths)),
        .rows = 11,
        .key_heads = 3,
        .scratch_bytes_max = bytes};
    cuda::delta_rule_backward(
        ops::launch_stream(*gpu_stream_), args,
        as_cuda(*gpu_stream_).scratch(cuda::delta_rule_backward_scratch(args)));
    expected.push_back(gpu_values(grads.gpu));
  }
  EXPECT_EQ(expected[0], expected[1]);
}

}  // namespace
}  // namespace jige
