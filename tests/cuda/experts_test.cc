// Choice of experts, rows by expert and their products on a GPU, beside those of the CPU.
#include "ops/experts.h"

#include <algorithm>

#include "cuda/test_device.h"
#include "ops/elementwise.h"
#include "ops/expert_balance.h"
#include "ops/expert_linear.h"

namespace jige {
namespace {

using ops::PackUse;

class CudaExperts : public CudaTest {
 protected:
  struct Rule {
    int64_t tokens, experts, chosen;
    bool normalised = false, sigmoid = false, biased = false, scaled = false;
    int64_t groups = 1, chosen_groups = 1;
    bool pairs = false;
    float sum_min = 0;
  };
  // A routing on both, of the same logits, among which are equal ones.
  struct Routes {
    Pair wide, logits, chosen, weights, row_of_place, place_of_row, row_ends, bias, scales, scaled;
    ops::Routing host, gpu;
  };
  static Pair columns(const Pair& pair, int64_t begin, int64_t end) {
    return {pair.host.column_range(begin, end), pair.gpu.column_range(begin, end)};
  }
  Routes make(const Rule& rule) {
    const Shape places{rule.tokens, rule.chosen};
    Routes routes;
    routes.wide = random(DType::kF32, {rule.tokens, rule.experts + 1}, 2.0f);
    for (int64_t i = 0; i < routes.wide.host.count(); ++i) {
      if (random_.below(4) == 0) set(routes.wide.host, i, 1.5f);
    }
    to_gpu(routes.wide);
    routes.logits = columns(routes.wide, 0, rule.experts);
    routes.chosen = filled(DType::kI32, places);
    routes.weights = filled(DType::kF32, places);
    routes.row_of_place = filled(DType::kI32, places);
    routes.place_of_row = filled(DType::kI32, {places.count()});
    routes.row_ends = filled(DType::kI32, {rule.experts});
    if (rule.biased) routes.bias = random(DType::kF32, {rule.experts}, 0.3f);
    if (rule.scaled) routes.scales = random(DType::kF32, {rule.experts});
    if (rule.scaled) routes.scaled = filled(DType::kF32, places);
    const auto side = [&](TensorView Pair::*at) -> ops::Routing {
      return {.logits = routes.logits.*at,
              .chosen = routes.chosen.*at,
              .weights = routes.weights.*at,
              .row_of_place = routes.row_of_place.*at,
              .place_of_row = routes.place_of_row.*at,
              .row_ends = routes.row_ends.*at,
              .normalised = rule.normalised,
              .sigmoid = rule.sigmoid,
              .scale = 1.25f,
              .sum_offset = rule.sigmoid ? 1e-20f : 0.0f,
              .sum_min = rule.sum_min,
              .groups = rule.groups,
              .chosen_groups = rule.chosen_groups,
              .groups_by_pairs = rule.pairs,
              .choice_bias = routes.bias.*at,
              .scales = routes.scales.*at,
              .scaled_weights = routes.scaled.*at};
    };
    routes.host = side(&Pair::host);
    routes.gpu = side(&Pair::gpu);
    return routes;
  }
  Routes route(const Rule& rule) {
    Routes routes = make(rule);
    ops::route(*cpu_stream_, routes.host);
    ops::route(*gpu_stream_, routes.gpu);
    return routes;
  }
  // Calls run(stream, routing, side) on both.
  template <typename Run>
  void on_both(const Routes& routes, Run run) {
    run(*cpu_stream_, routes.host, &Pair::host);
    run(*gpu_stream_, routes.gpu, &Pair::gpu);
  }
  void expect_routes(const Routes& routes, const std::string& what) {
    expect_equal(routes.chosen, what + " chosen");
    expect_equal(routes.weights, what + " weights");
    expect_equal(routes.row_of_place, what + " rows");
    expect_equal(routes.place_of_row, what + " places");
    expect_equal(routes.row_ends, what + " ends");
    if (routes.scales.host) expect_equal(routes.scaled, what + " scaled");
  }

  struct Weights {
    ops::ExpertWeights host, gpu;
  };
  // Packs a weight [E n, k] on both, each expert's n rows.
  Weights pack(const Pair& weight, int64_t experts, DType compute, PackUse use) {
    const int64_t n = weight.host.rows() / experts;
    const int64_t k = weight.host.columns();
    const auto side = [&](TensorView Pair::*at, Stream& stream, DeviceKind device) {
      const int64_t bytes =
          (ops::packed_weight_bytes(compute, use, n, k, ops::WeightFormat::kCompute, device) + 63) /
          64 * 64;
      const Pair memory = filled(DType::kU8, {bytes * experts});
      const ops::ExpertWeights weights = {.first = {.data = (memory.*at).data,
                                                    .compute = compute,
                                                    .use = use,
                                                    .n = n,
                                                    .k = k,
                                                    .device = device},
                                          .stride_bytes = bytes,
                                          .count = experts};
      for (int64_t e = 0; e < experts; ++e) {
        ops::pack_weight(stream, weights.at(e), (weight.*at).row_range(e * n, (e + 1) * n));
      }
      return weights;
    };
    return {side(&Pair::host, *cpu_stream_, DeviceKind::kCpu),
            side(&Pair::gpu, *gpu_stream_, DeviceKind::kCuda)};
  }
  struct Case {
    Rule rule;
    int64_t n, k;
    DType compute, dst;
  };
  void expect_products(const Case& test);
};

TEST_F(CudaExperts, AreChosenAndSortedAsTheCpuDoes) {
  const Rule rules[] = {
      {.tokens = 1, .experts = 1, .chosen = 1},
      {.tokens = 16, .experts = 37, .chosen = 8, .normalised = true},
      {.tokens = 17, .experts = 5, .chosen = 5, .scaled = true},
      {.tokens = 300, .experts = 40, .chosen = 4, .normalised = true, .sum_min = 0.4f},
      {.tokens = 9,
       .experts = 24,
       .chosen = 4,
       .normalised = true,
       .sigmoid = true,
       .biased = true,
       .groups = 6,
       .chosen_groups = 2,
       .pairs = true},
      {.tokens = 20, .experts = 24, .chosen = 3, .sigmoid = true, .groups = 8, .chosen_groups = 3},
      {.tokens = 20, .experts = 20, .chosen = 3, .biased = true},
      {.tokens = 3, .experts = 16, .chosen = 2, .groups = 4, .chosen_groups = 2},
  };
  std::vector<Rule> all(std::begin(rules), std::end(rules));
  if (!test_device_is_emulated()) all.push_back({.tokens = 20000, .experts = 128, .chosen = 8});
  for (const Rule& rule : all) {
    const std::string what = fmt::format("{} of {} for {}", rule.chosen, rule.experts, rule.tokens);
    const Routes routes = route(rule);
    expect_routes(routes, what);
    const Pair grads = random(DType::kF32, {rule.tokens, rule.chosen});
    const Pair wide = random(DType::kF32, {rule.tokens, rule.experts + 1});
    on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
      ops::route_backward(stream, routing, (wide.*at).column_range(0, rule.experts), grads.*at);
    });
    expect_equal(wide, what + " slopes");
  }
}

TEST_F(CudaExperts, NanIsChosenLast) {
  const Routes routes = make({.tokens = 3, .experts = 4, .chosen = 2});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {1, 3, 3, 3, 0, nan, 0, nan, -5, 0, nan, nan, nan, nan, 0};
  for (size_t i = 0; i < logits.size(); ++i)
    set(routes.wide.host, static_cast<int64_t>(i), logits[i]);
  to_gpu(routes.wide);
  ops::route(*gpu_stream_, routes.gpu);
  EXPECT_EQ(gpu_values(routes.gpu.chosen), (std::vector<float>{1, 2, 1, 3, 0, 1}));
}

TEST_F(CudaExperts, HaveTheirRowsMovedAndAddedAsTheCpuDoes) {
  for (const int64_t width : {24, 45}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Routes routes = route({.tokens = 21, .experts = 6, .chosen = 3, .scaled = true});
      const Pair src = random(dtype, {21, width});
      const Pair rows = filled(dtype, {63, width});
      const Pair biases = random(DType::kF32, {6, width});
      const Pair base = random(DType::kF32, {21, width});
      const Pair addend = columns(random(DType::kF32, {21, width + 8}), 8, width + 8);
      const Pair dst = filled(DType::kF32, {21, width});
      const Pair plain = filled(dtype, {21, width});
      on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
        ops::gather_rows(stream, routing, rows.*at, src.*at);
        ops::add_biases(stream, routing, rows.*at, biases.*at);
        ops::weigh_rows(stream, routing, rows.*at);
        ops::combine_rows(stream, routing, dst.*at, rows.*at, ops::RowWeights::kRouter, base.*at,
                          addend.*at);
        ops::combine_rows(stream, routing, plain.*at, rows.*at, ops::RowWeights::kOnes);
      });
      expect_equal(rows, "rows");
      expect_equal(dst, "sums");
      expect_equal(plain, "sums without weights");
    }
  }
}

TEST_F(CudaExperts, HaveInnerProductsNearThoseOfTheCpu) {
  for (const int64_t width : {264, 45}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Routes routes = route({.tokens = 7, .experts = 6, .chosen = 3});
      const Pair a = random(dtype, {21, width});
      const Pair b = random(dtype, {21, width});
      const Pair biases = random(DType::kF32, {6, width});
      const Pair dots = filled(DType::kF32, {7, 3});
      const Pair logits = random(DType::kF32, {21, 2});
      const Pair grad_logits = random(DType::kF32, {21, 2});
      on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
        ops::dot_rows(stream, routing, dots.*at, a.*at, b.*at);
        ops::dot_biases(stream, routing, dots.*at, b.*at, biases.*at);
        ops::gate_rows(stream, a.*at, (logits.*at).column_range(1, 2));
        ops::gate_rows_backward(stream, (grad_logits.*at).column_range(1, 2), b.*at, a.*at,
                                (logits.*at).column_range(1, 2));
      });
      expect_near(dots, 2e-5, "dots");
      expect_near(grad_logits, 2e-5, "slopes of gates");
      expect_equal(a, "gated");
    }
  }
}

TEST_F(CudaExperts, HaveGatesInBoundsAndGradientsOfBiases) {
  for (const int64_t width : {24, 13}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Routes routes = route({.tokens = 30, .experts = 4, .chosen = 2});
      const Pair gate_up = random(dtype, {60, 2 * width}, 2.0f);
      const Pair biases = random(DType::kF32, {4, 2 * width});
      const Pair dst = filled(dtype, {60, width});
      const Pair grad = random(dtype, {60, width});
      const Pair grad_gate_up = filled(dtype, {60, 2 * width});
      const Pair grads = random(DType::kF32, {4, 2 * width});
      on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
        const ops::BoundedGate gate = {.biases = biases.*at, .alpha = 1.702f, .limit = 2.5f};
        ops::bounded_gate(stream, routing, gate, dst.*at, gate_up.*at);
        ops::bounded_gate_backward(stream, routing, gate,
                                   {.grad_gate_up = grad_gate_up.*at,
                                    .grad_dst = grad.*at,
                                    .gate_up = gate_up.*at,
                                    .activated = (gate_up.*at).column_range(0, width)});
        std::vector<TensorView> views;
        for (int64_t e = 0; e < 4; ++e) {
          views.push_back(e == 1 ? TensorView()
                                 : (grads.*at).row_range(e, e + 1).reshaped({2 * width}));
        }
        ops::bias_gradients(stream, routing, views, gate_up.*at, ops::RowWeights::kRouter);
      });
      const double tolerance = dtype == DType::kF32 ? 2e-6 : 0.01;
      expect_near(dst, tolerance, "gates");
      expect_near(gate_up, tolerance, "gates again");
      expect_near(grad_gate_up, tolerance, "gradients of gates");
      expect_near(grads, dtype == DType::kF32 ? 1e-5 : 0.05, "gradients of biases");
    }
  }
}

TEST_F(CudaExperts, AreBalancedAsTheCpuDoes) {
  for (const Rule& rule :
       {Rule{.tokens = 90, .experts = 21, .chosen = 4, .normalised = true},
        Rule{.tokens = 90, .experts = 5, .chosen = 2},
        Rule{.tokens = 90, .experts = 40, .chosen = 3, .sigmoid = true, .biased = true}}) {
    const Routes routes = route(rule);
    const Pair losses = filled(DType::kF32, {rule.tokens});
    const Pair wide = random(DType::kF32, {rule.tokens, rule.experts + 1});
    on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
      ops::balance_experts(stream, routing,
                           {.losses = losses.*at,
                            .grad_logits = (wide.*at).column_range(0, rule.experts),
                            .weight = 0.3f,
                            .sequences = {{.row_begin = 0, .row_count = 1},
                                          {.row_begin = 1, .row_count = 70},
                                          {.row_begin = 71, .row_count = 19}}});
    });
    expect_equal(losses, "losses");
    expect_equal(wide, "slopes");
  }
}

TEST_F(CudaExperts, HaveGradientsOfTheirScales) {
  const Routes routes = route({.tokens = 41, .experts = 3, .chosen = 2, .scaled = true});
  const Pair grads = random(DType::kF32, {41, 2});
  const Pair slopes = filled(DType::kF32, {41, 2});
  const Pair grad_scales = random(DType::kF32, {3});
  on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
    ops::scale_slopes(stream, routing, grads.*at, slopes.*at);
    ops::scale_gradients(stream, routing, grad_scales.*at, slopes.*at);
  });
  expect_equal(grads);
  expect_equal(slopes);
  expect_equal(grad_scales);
}

void CudaExperts::expect_products(const Case& test) {
  const Rule& rule = test.rule;
  const int64_t rows = rule.tokens * rule.chosen;
  const std::string what = fmt::format("T {} of {} n {} k {} {}", rule.tokens, rule.experts, test.n,
                                       test.k, dtype_info(test.compute).name);
  const bool exact = test.compute == DType::kF32;
  const double tolerance = test.dst == DType::kF32 ? 3e-4 : 0.01;
  const Routes routes = route(rule);
  const Pair weight = random(DType::kF32, {rule.experts * test.n, test.k});
  const Pair src = random(test.compute, {rows, test.k + 8});
  const Pair dst = filled(test.dst, {rows, test.n});
  const Pair grad_dst = random(test.compute, {rows, test.n});
  const Pair grad_src = filled(test.dst, {rows, test.k});
  const Pair grads = random(DType::kF32, {rule.experts * test.n, test.k});
  const Pair stored = filled(DType::kF32, {rule.experts * test.n, test.k});
  const Weights forward = pack(weight, rule.experts, test.compute, PackUse::kForward);
  const Weights backward = pack(weight, rule.experts, test.compute, PackUse::kInputGradient);
  on_both(routes, [&](Stream& stream, const ops::Routing& routing, TensorView Pair::*at) {
    const bool on_gpu = at == &Pair::gpu;
    const TensorView inputs = (src.*at).column_range(8, 8 + test.k);
    ops::expert_product(stream, {.dst = dst.*at,
                                 .src = inputs,
                                 .weights = on_gpu ? forward.gpu : forward.host,
                                 .row_ends = routing.row_ends,
                                 .token_count = rule.tokens});
    ops::expert_product(stream, {.dst = grad_src.*at,
                                 .src = grad_dst.*at,
                                 .weights = on_gpu ? backward.gpu : backward.host,
                                 .use = PackUse::kInputGradient,
                                 .row_ends = routing.row_ends,
                                 .token_count = rule.tokens});
    for (const bool accumulate : {true, false}) {
      std::vector<TensorView> views;
      for (int64_t e = 0; e < rule.experts; ++e) {
        const TensorView all = accumulate ? grads.*at : stored.*at;
        views.push_back(e == 1 && accumulate ? TensorView()
                                             : all.row_range(e * test.n, (e + 1) * test.n));
      }
      ops::expert_weight_gradient(stream, {.grads = views,
                                           .grad_dst = grad_dst.*at,
                                           .src = inputs,
                                           .row_ends = routing.row_ends,
                                           .compute = test.compute,
                                           .accumulate = accumulate});
    }
  });
  for (const auto& [pair, name] : {std::pair{dst, " forward"}, {grad_src, " input"}}) {
    if (exact && test.dst == DType::kF32) {
      expect_equal(pair, what + name);
    } else {
      expect_near(pair, tolerance, what + name);
    }
  }
  for (const auto& [pair, name] : {std::pair{grads, " added"}, {stored, " stored"}}) {
    if (exact) {
      expect_equal(pair, what + name);
    } else {
      expect_near(pair, 3e-4, what + name);
    }
  }
}

TEST_F(CudaExperts, MultiplyAsTheCpuDoes) {
  // Some experts have no rows, some more than a tile.
  expect_products({{.tokens = 70, .experts = 3, .chosen = 1}, 20, 13, DType::kF32, DType::kF32});
  expect_products({{.tokens = 5, .experts = 37, .chosen = 3}, 70, 9, DType::kF32, DType::kF32});
  expect_products({{.tokens = 18, .experts = 4, .chosen = 2}, 12, 10, DType::kBF16, DType::kBF16});
}

TEST_F(CudaExperts, MultiplyOnTensorCoresAsTheCpuDoes) {
  expect_products({{.tokens = 40, .experts = 4, .chosen = 1}, 72, 136, DType::kBF16, DType::kF32});
  expect_products({{.tokens = 70, .experts = 2, .chosen = 1}, 24, 8, DType::kBF16, DType::kBF16});
  expect_products({{.tokens = 140, .experts = 1, .chosen = 1}, 16, 24, DType::kBF16, DType::kF32});
  if (test_device_is_emulated()) return;
  expect_products(
      {{.tokens = 999, .experts = 30, .chosen = 5}, 776, 520, DType::kBF16, DType::kF32});
}

// Tiles are as high as experts have rows on average.
TEST_F(CudaExperts, ARowsBitsDoNotDependOnHowManyThereAre) {
  const Pair weight = random(DType::kF32, {40, 136});
  const Pair src = random(DType::kBF16, {100, 136});
  const ops::ExpertWeights weights = pack(weight, 1, DType::kBF16, PackUse::kForward).gpu;
  std::vector<float> expected;
  for (const int64_t tokens : {20, 40, 100}) {
    const Routes routes = route({.tokens = tokens, .experts = 1, .chosen = 1});
    const Pair dst = filled(DType::kF32, {tokens, 40});
    ops::expert_product(*gpu_stream_, {.dst = dst.gpu,
                                       .src = src.gpu.row_range(0, tokens),
                                       .weights = weights,
                                       .row_ends = routes.gpu.row_ends,
                                       .token_count = tokens});
    const std::vector<float> got = gpu_values(dst.gpu.row_range(0, 20));
    if (expected.empty()) expected = got;
    EXPECT_EQ(got, expected) << tokens;
  }
}

TEST_F(CudaExperts, MultiplyFewRowsAsTheCpuDoes) {
  expect_products({{.tokens = 1, .experts = 40, .chosen = 3}, 48, 40, DType::kBF16, DType::kF32});
  expect_products({{.tokens = 16, .experts = 2, .chosen = 1}, 33, 104, DType::kBF16, DType::kBF16});
  expect_products({{.tokens = 6, .experts = 5, .chosen = 2}, 9, 11, DType::kBF16, DType::kF32});
  expect_products({{.tokens = 2, .experts = 5, .chosen = 2}, 70, 24, DType::kBF16, DType::kF32});
  if (test_device_is_emulated()) return;
  expect_products(
      {{.tokens = 16, .experts = 64, .chosen = 8}, 768, 512, DType::kBF16, DType::kF32});
}

// Products with gates have the bits of what they are made of.
TEST_F(CudaExperts, GateFewRowsWithinTheProduct) {
  const int64_t inputs = 40;
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{1, 24}, {11, 40}}) {
    const Rule rule = {.tokens = tokens, .experts = 7, .chosen = 3};
    const Routes routes = route(rule);
    const Pair src = random(DType::kBF16, {tokens, inputs});
    const Pair weight = random(DType::kF32, {rule.experts * 2 * width, inputs}, 0.3f);
    const Pair biases = random(DType::kF32, {rule.experts, 2 * width});
    const ops::ExpertWeights weights =
        pack(weight, rule.experts, DType::kBF16, PackUse::kForward).gpu;
    const Pair rows = filled(DType::kBF16, {tokens * 3, inputs});
    const Pair gate_up = filled(DType::kBF16, {tokens * 3, 2 * width});
    ops::gather_rows(*gpu_stream_, routes.gpu, rows.gpu, src.gpu);
    ops::expert_product(*gpu_stream_, {.dst = gate_up.gpu,
                                       .src = rows.gpu,
                                       .weights = weights,
                                       .row_ends = routes.gpu.row_ends,
                                       .token_count = tokens});
    const ops::BoundedGate bounded = {.biases = biases.gpu, .alpha = 1.702f, .limit = 1.0f};
    for (const int kind : {0, 1, 2}) {
      const Pair apart = filled(DType::kBF16, {tokens * 3, width});
      const Pair within = filled(DType::kBF16, {tokens * 3, width});
      if (kind == 0) ops::swiglu_forward(*gpu_stream_, apart.gpu, gate_up.gpu);
      if (kind == 1) ops::geglu_forward(*gpu_stream_, apart.gpu, gate_up.gpu);
      if (kind == 2) {
        ops::bounded_gate(*gpu_stream_, routes.gpu, bounded, apart.gpu, gate_up.gpu);
      }
      ASSERT_TRUE(ops::expert_gated_forward(
          *gpu_stream_, {.dst = within.gpu,
                         .src = src.gpu,
                         .weights = weights,
                         .routing = routes.gpu,
                         .unit = kind == 1 ? ops::GatedUnit::kGeGlu : ops::GatedUnit::kSwiGlu,
                         .bounded = kind == 2 ? bounded : ops::BoundedGate{}}));
      EXPECT_EQ(gpu_values(within.gpu), gpu_values(apart.gpu)) << tokens << " tokens, " << kind;
    }
  }
}

}  // namespace
}  // namespace jige
