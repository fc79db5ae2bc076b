#include "ops/head_linear.h"

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;

// Columns of heads that a product has nothing to do with stay as they are.
TEST(HeadLinear, IsTheProductsOfItsHeads) {
  constexpr int64_t kHeads = 3, kRowsOfAll = 5, kN = 7, kK = 9, kGap = 2;
  test::TestStream stream;
  for (const PackUse use : {PackUse::kForward, PackUse::kInputGradient}) {
    const bool forward = use == PackUse::kForward;
    const int64_t outputs = forward ? kN : kK;
    const int64_t inputs = forward ? kK : kN;
    Rng rng(3);
    Matrix weight(DType::kF32, kHeads * kN, kK);
    Matrix src(DType::kF32, kRowsOfAll, kHeads * (inputs + kGap));
    Matrix dst(DType::kF32, kRowsOfAll, kHeads * (outputs + kGap));
    test::Values expected = dst.fill_normal(rng).values();
    const test::Values w = weight.fill_normal(rng).values();
    const test::Values x = src.fill_normal(rng).values();
    for (int64_t t = 0; t < kRowsOfAll; ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t o = 0; o < outputs; ++o) {
          double sum = 0;
          for (int64_t i = 0; i < inputs; ++i) {
            const int64_t row = h * kN + (forward ? o : i);
            sum += x[static_cast<size_t>((t * kHeads + h) * (inputs + kGap) + i)] *
                   w[static_cast<size_t>(row * kK + (forward ? i : o))];
          }
          expected[static_cast<size_t>((t * kHeads + h) * (outputs + kGap) + o)] = sum;
        }
      }
    }
    const int64_t bytes = (packed_weight_bytes(DType::kF32, use, kN, kK) + 63) / 64 * 64;
    Matrix memory(DType::kF32, 1, kHeads * bytes / 4);
    const HeadWeights weights = {{memory.view().data, DType::kF32, use, kN, kK}, bytes, kHeads};
    for (int64_t h = 0; h < kHeads; ++h) {
      pack_head_weight(*stream, weights, h, weight.view().row_range(h * kN, (h + 1) * kN));
    }
    head_linear(*stream, {dst.view(), src.view(), weights});
    test::expect_near(dst, expected, 1e-5, 1e-5, forward ? "forward" : "input gradient");
  }
}

}  // namespace
}  // namespace jige::ops
