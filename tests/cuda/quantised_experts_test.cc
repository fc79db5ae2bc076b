// Experts of few bits on a GPU: products of few rows beside sums in double, those of many beside
// products with ordinary weights of the same numbers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/test_device.h"
#include "kernels/cuda/quant.h"
#include "ops/elementwise.h"
#include "ops/expert_linear.h"
#include "ops/kernel_rows.h"

namespace jige {
namespace {

using ops::PackUse;
using ops::WeightFormat;

constexpr WeightFormat kExpertFormats[] = {WeightFormat::kQ8, WeightFormat::kQ4,
                                           WeightFormat::kMxfp4};
// Those that have kernels of their own: mxfp4 has other levels than q4.
constexpr WeightFormat kExpertWidths[] = {WeightFormat::kQ8, WeightFormat::kQ4};

class CudaQuantisedExperts : public CudaTest {
 protected:
  struct Experts {
    ops::ExpertWeights weights;
    std::vector<float> numbers;  // [E, n, k] that the blocks stand for
  };

  ops::ExpertWeights memory_for(int64_t count, int64_t n, int64_t k, DType compute,
                                WeightFormat format) {
    const int64_t bytes =
        (ops::packed_weight_bytes(compute, PackUse::kForward, n, k, format, DeviceKind::kCuda) +
         63) /
        64 * 64;
    return {.first = {.data = filled(DType::kU8, {bytes * count}).gpu.data,
                      .compute = compute,
                      .n = n,
                      .k = k,
                      .format = format,
                      .device = DeviceKind::kCuda},
            .stride_bytes = bytes,
            .count = count};
  }
  Experts quantise(int64_t count, int64_t n, int64_t k, DType compute, WeightFormat format) {
    const Pair values = random(DType::kF32, {count * n, k}, 0.3f);
    Experts experts = {memory_for(count, n, k, compute, format), {}};
    for (int64_t e = 0; e < count; ++e) {
      const ops::PackedWeight weight = experts.weights.at(e);
      ops::pack_weight(*gpu_stream_, weight, values.gpu.row_range(e * n, (e + 1) * n));
      const Pair numbers = filled(DType::kF32, {n, k});
      cuda::quant_numbers(ops::launch_stream(*gpu_stream_),
                          {.weight = {.data = static_cast<unsigned char*>(weight.data),
                                      .n = n,
                                      .k = k,
                                      .halves = format != WeightFormat::kQ8},
                           .rows = n,
                           .columns = k,
                           .dst = ops::rows_of(numbers.gpu)});
      const std::vector<float> got = gpu_values(numbers.gpu);
      experts.numbers.insert(experts.numbers.end(), got.begin(), got.end());
    }
    return experts;
  }
  // Ordinary weights of the same numbers.
  ops::ExpertWeights ordinary(const Experts& experts, PackUse use) {
    const ops::PackedWeight& first = experts.weights.first;
    ops::ExpertWeights weights =
        memory_for(experts.weights.count, first.n, first.k, first.compute, WeightFormat::kCompute);
    weights.first.use = use;
    const Pair numbers = filled(DType::kF32, {weights.count * first.n, first.k});
    std::copy(experts.numbers.begin(), experts.numbers.end(), numbers.host.as<float>());
    to_gpu(numbers);
    for (int64_t e = 0; e < weights.count; ++e) {
      ops::pack_weight(*gpu_stream_, weights.at(e),
                       numbers.gpu.row_range(e * first.n, (e + 1) * first.n));
    }
    return weights;
  }
  static std::vector<int32_t> ends_of(const std::vector<int>& counts) {
    std::vector<int32_t> ends(counts.size());
    std::partial_sum(counts.begin(), counts.end(), ends.begin());
    return ends;
  }
  std::vector<float> product(const ops::ExpertWeights& weights, PackUse use, const TensorView& src,
                             const std::vector<int>& counts, int64_t tokens, DType dtype) {
    const bool forward = use == PackUse::kForward;
    const int64_t columns = forward ? weights.first.n : weights.first.k;
    const Pair dst = filled(dtype, {src.rows(), columns});
    ops::expert_product(*gpu_stream_, {.dst = dst.gpu,
                                       .src = src,
                                       .weights = weights,
                                       .use = use,
                                       .row_ends = integers(ends_of(counts)).gpu,
                                       .token_count = tokens});
    return gpu_values(dst.gpu);
  }
};

// Some experts have no rows; columns of src lie apart, and its rows where vectors are not aligned.
TEST_F(CudaQuantisedExperts, FewRowsAreMultipliedWithTheNumbers) {
  struct Case {
    std::vector<int> counts;
    int64_t tokens, n, k, gap;
    DType dst;
  };
  std::vector<Case> cases = {{{0, 1, 0, 1, 0}, 1, 48, 264, 8, DType::kF32},
                             {{3, 0, 5, 1}, 5, 21, 77, 3, DType::kF32},
                             {{16, 2, 0}, 16, 70, 136, 8, DType::kBF16}};
  if (!test_device_is_emulated()) {
    cases.push_back({{1, 9, 0, 16, 2, 4}, 16, 1536, 2048, 0, DType::kF32});
  }
  for (const WeightFormat format : kExpertFormats) {
    for (const Case& test : cases) {
      const auto count = static_cast<int64_t>(test.counts.size());
      const int64_t rows = ends_of(test.counts).back();
      const Experts experts = quantise(count, test.n, test.k, DType::kBF16, format);
      const Pair wide = random(DType::kBF16, {rows, test.k + test.gap});
      const std::vector<float> got =
          product(experts.weights, PackUse::kForward, wide.gpu.column_range(0, test.k), test.counts,
                  test.tokens, test.dst);
      const std::vector<int32_t> ends = ends_of(test.counts);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t expert = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
        for (int64_t column = 0; column < test.n; ++column) {
          double expected = 0, size = 1;
          for (int64_t i = 0; i < test.k; ++i) {
            const size_t at = static_cast<size_t>((expert * test.n + column) * test.k + i);
            const double term =
                double{get(wide.host, row * (test.k + test.gap) + i)} * experts.numbers[at];
            expected += term;
            size += std::fabs(term);
          }
          const double rounding = test.dst == DType::kF32 ? 0 : 0x1p-8 * std::fabs(expected);
          ASSERT_NEAR(got[static_cast<size_t>(row * test.n + column)], expected,
                      0x1p-20 * size + rounding)
              << ops::weight_format_name(format) << " n " << test.n << " row " << row << " column "
              << column;
        }
      }
      tensors_.clear();
    }
  }
}

// On tensor cores, by tiles of every height, and in chains; forward and for the input gradient.
TEST_F(CudaQuantisedExperts, ManyRowsHaveTheBitsOfOrdinaryWeightsOfTheNumbers) {
  struct Case {
    std::vector<int> counts;
    int64_t n, k;
    DType compute, dst;
  };
  std::vector<Case> cases = {{{20, 0, 3}, 72, 264, DType::kBF16, DType::kF32},
                             {{70, 35}, 24, 8, DType::kBF16, DType::kBF16},
                             {{150}, 40, 72, DType::kBF16, DType::kF32},
                             {{5, 18}, 21, 13, DType::kBF16, DType::kF32},
                             {{0, 20}, 40, 72, DType::kF32, DType::kF32}};
  if (!test_device_is_emulated()) {
    cases.push_back({{9, 0, 64, 300, 1, 77}, 776, 2048, DType::kBF16, DType::kF32});
  }
  for (const WeightFormat format : kExpertWidths) {
    for (const Case& test : cases) {
      const auto count = static_cast<int64_t>(test.counts.size());
      const int64_t rows = ends_of(test.counts).back();
      const Experts experts = quantise(count, test.n, test.k, test.compute, format);
      for (const PackUse use : {PackUse::kForward, PackUse::kInputGradient}) {
        const bool forward = use == PackUse::kForward;
        const Pair src = random(test.compute, {rows, forward ? test.k : test.n});
        const std::vector<float> got =
            product(experts.weights, use, src.gpu, test.counts, rows, test.dst);
        const std::vector<float> expected =
            product(ordinary(experts, use), use, src.gpu, test.counts, rows, test.dst);
        EXPECT_EQ(got, expected) << ops::weight_format_name(format) << " rows " << rows << " n "
                                 << test.n << (forward ? " forward" : " input gradient");
      }
      tensors_.clear();
    }
  }
}

TEST_F(CudaQuantisedExperts, ATokensBitsDoNotDependOnTheOthersOfAFew) {
  for (const WeightFormat format : kExpertWidths) {
    const int64_t n = 40, k = 1160;
    const Experts experts = quantise(2, n, k, DType::kBF16, format);
    const Pair src = random(DType::kBF16, {14, k});
    const auto rows = [&](int64_t begin, const std::vector<int>& counts, int64_t tokens) {
      const int64_t end = begin + ends_of(counts).back();
      return product(experts.weights, PackUse::kForward, src.gpu.row_range(begin, end), counts,
                     tokens, DType::kF32);
    };
    const std::vector<float> all = rows(0, {11, 3}, 16);
    for (const auto& [begin, counts] :
         {std::pair<int64_t, std::vector<int>>{0, {1, 0}}, {8, {3, 2}}, {13, {0, 1}}}) {
      const int64_t end = begin + ends_of(counts).back();
      EXPECT_EQ(rows(begin, counts, end - begin),
                std::vector<float>(all.begin() + begin * n, all.begin() + end * n));
    }
    tensors_.clear();
  }
}

// Rows that are still to be gathered, with gates of every kind; where the gate's rows are no whole
// records nothing is done.
TEST_F(CudaQuantisedExperts, GateFewRowsWithinTheProduct) {
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{1, 48}, {11, 32}, {2, 24}}) {
    for (const WeightFormat format : kExpertWidths) {
      const int64_t count = 5, chosen = 2, inputs = 40, rows = tokens * chosen;
      const Experts experts = quantise(count, 2 * width, inputs, DType::kBF16, format);
      const ops::Routing routing = {.logits = random(DType::kF32, {tokens, count}).gpu,
                                    .chosen = filled(DType::kI32, {tokens, chosen}).gpu,
                                    .weights = filled(DType::kF32, {tokens, chosen}).gpu,
                                    .row_of_place = filled(DType::kI32, {tokens, chosen}).gpu,
                                    .place_of_row = filled(DType::kI32, {rows}).gpu,
                                    .row_ends = filled(DType::kI32, {count}).gpu};
      ops::route(*gpu_stream_, routing);
      const Pair src = random(DType::kBF16, {tokens, inputs});
      const Pair gathered = filled(DType::kBF16, {rows, inputs});
      const Pair gate_up = filled(DType::kBF16, {rows, 2 * width});
      ops::gather_rows(*gpu_stream_, routing, gathered.gpu, src.gpu);
      ops::expert_product(*gpu_stream_, {.dst = gate_up.gpu,
                                         .src = gathered.gpu,
                                         .weights = experts.weights,
                                         .row_ends = routing.row_ends,
                                         .token_count = tokens});
      const ops::BoundedGate bounded = {
          .biases = random(DType::kF32, {count, 2 * width}).gpu, .alpha = 1.702f, .limit = 1.0f};
      for (const int kind : {0, 1, 2}) {
        const Pair apart = filled(DType::kBF16, {rows, width});
        const Pair within = filled(DType::kBF16, {rows, width});
        if (kind == 0) ops::swiglu_forward(*gpu_stream_, apart.gpu, gate_up.gpu);
        if (kind == 1) ops::geglu_forward(*gpu_stream_, apart.gpu, gate_up.gpu);
        if (kind == 2) ops::bounded_gate(*gpu_stream_, routing, bounded, apart.gpu, gate_up.gpu);
        const bool done = ops::expert_gated_forward(
            *gpu_stream_, {.dst = within.gpu,
                           .src = src.gpu,
                           .weights = experts.weights,
                           .routing = routing,
                           .unit = kind == 1 ? ops::GatedUnit::kGeGlu : ops::GatedUnit::kSwiGlu,
                           .bounded = kind == 2 ? bounded : ops::BoundedGate{}});
        EXPECT_EQ(done, width % 16 == 0);
        if (!done) continue;
        EXPECT_EQ(gpu_values(within.gpu), gpu_values(apart.gpu)) << tokens << ", " << kind;
      }
      tensors_.clear();
    }
  }
}

}  // namespace
}  // namespace jige
