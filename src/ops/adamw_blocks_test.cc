// AdamW with moments in blocks of 8-bit codes, against a plain form of what the kernel's header
// says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rough_normal.h"
#include "kernels/cpu/adamw_blocks.h"
#include "ops/adamw.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using cpu::kMomentBlock;
using cpu::MomentBlock;
using test::expect_same_bits_everywhere;
using test::for_each_isa;
using test::TestStream;
using test::view_of;

constexpr int64_t kBlockCounts[] = {1, 8, 15, 17, 127, 128, 129, 255, 256, 1003, 40000, 70001};

struct BlockState {
  std::vector<float> weight, grad;
  std::vector<MomentBlock> moment1, moment2;

  explicit BlockState(int64_t count)
      : weight(static_cast<size_t>(count)),
        grad(static_cast<size_t>(count)),
        moment1(static_cast<size_t>((count + kMomentBlock - 1) / kMomentBlock)),
        moment2(moment1.size()) {
    Rng rng(derive_key(1, "blocks", static_cast<uint64_t>(count)));
    for (float& value : weight) value = rough_normal(rng);
    draw_gradients(rng, 1);
  }
  void draw_gradients(Rng& rng, double scale) {
    for (float& value : grad) value = static_cast<float>(scale * rough_normal(rng));
  }
  static TensorView blocks_of(std::vector<MomentBlock>& blocks) {
    return TensorView::of(
        blocks.data(), DType::kU8,
        Shape{static_cast<int64_t>(blocks.size()), static_cast<int64_t>(sizeof(MomentBlock))});
  }
  AdamW args(int64_t step) {
    return {.weight = view_of(weight),
            .moment1 = blocks_of(moment1),
            .moment2 = blocks_of(moment2),
            .grad = view_of(grad),
            .learning_rate = 3e-3,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .step = step,
            .grad_scale = 0.7};
  }
  // Bits, so that NaN and the sign of zero count.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    const auto add = [&](const void* data, size_t size) {
      const auto* from = static_cast<const std::byte*>(data);
      all.insert(all.end(), from, from + size);
    };
    add(weight.data(), weight.size() * sizeof(float));
    add(moment1.data(), moment1.size() * sizeof(MomentBlock));
    add(moment2.data(), moment2.size() * sizeof(MomentBlock));
    return all;
  }
};

float first_moment(const MomentBlock& block, size_t i) {
  const auto code = static_cast<float>(block.codes[i]);
  return code * code * std::copysign(code * code, code) * block.scale;
}
float root_moment(const MomentBlock& block, size_t i) {
  const float code = static_cast<float>(block.codes[i]) + 128.0f;
  return code * code * (code * code) * block.scale;
}

float block_scale(float largest, float code_max) {
  const float scale = largest * (1 / (code_max * code_max * code_max * code_max));
  return scale >= 0x1p-100f ? scale : 0.0f;
}
float block_inverse(float scale) { return scale > 0 ? 1 / scale : 0.0f; }

// One element after the other.
void plain_step(BlockState& state, int64_t step) {
  const auto f = [](double value) { return static_cast<float>(value); };
  const float root_correction = f(1 / std::sqrt(1 - std::pow(0.95, static_cast<double>(step))));
  const float step_size = f(3e-3 / (1 - std::pow(0.9, static_cast<double>(step))));
  const float decay = f(1 - 3e-3 * 0.1);
  for (size_t b = 0; b < state.moment1.size(); ++b) {
    const size_t begin = b * kMomentBlock;
    const size_t count = std::min<size_t>(state.weight.size() - begin, kMomentBlock);
    MomentBlock& first = state.moment1[b];
    MomentBlock& second = state.moment2[b];
    float m[kMomentBlock] = {}, r[kMomentBlock] = {};
    float m_max = 0, r_max = 0;
    for (size_t i = 0; i < count; ++i) {
      const float g = state.grad[begin + i] * f(0.7);
      const float root = root_moment(second, i);
      m[i] = std::fma(f(1 - 0.9), g, f(0.9) * first_moment(first, i));
      const float v = std::fma(f(1 - 0.95) * g, g, f(0.95) * (root * root));
      r[i] = std::min(std::sqrt(v), 0x1p63f);
      const float quotient = m[i] / std::fma(r[i], root_correction, f(1e-8));
      float& w = state.weight[begin + i];
      w = std::fma(-step_size, quotient, w * decay);
      m_max = std::max(m_max, std::fabs(m[i]));
      r_max = std::max(r_max, r[i]);
    }
    first.scale = block_scale(m_max, 127);
    second.scale = block_scale(r_max, 255);
    for (size_t i = 0; i < kMomentBlock; ++i) {
      const float code1 =
          std::min(std::sqrt(std::sqrt(std::fabs(m[i]) * block_inverse(first.scale))), 127.0f);
      const float code2 =
          std::min(std::sqrt(std::sqrt(r[i] * block_inverse(second.scale))), 255.0f);
      first.codes[i] = static_cast<int8_t>(std::nearbyint(std::copysign(code1, m[i])));
      second.codes[i] = static_cast<int8_t>(std::nearbyint(std::max(code2, 1.0f) - 128.0f));
    }
  }
}

TEST(AdamWBlocks, GivesTheBitsOfThePlainForm) {
  for_each_isa([&] {
    for (const int64_t count : kBlockCounts) {
      TestStream stream;
      BlockState state(count);
      BlockState plain(count);
      Rng rng(3);
      for (int64_t step = 1; step <= 6; ++step) {
        state.draw_gradients(rng, step == 4 ? 30 : 1.0 / static_cast<double>(step));
        plain.grad = state.grad;
        adamw(*stream, state.args(step));
        plain_step(plain, step);
        ASSERT_EQ(state.bytes(), plain.bytes()) << count << " elements, step " << step;
      }
    }
  });
}

// Moments stay within the error of their code, and the update within that of the moments.
TEST(AdamWBlocks, StaysNearAdamWInF32) {
  TestStream stream;
  constexpr int64_t kCount = 5000;
  BlockState state(kCount);
  std::vector<float> weight = state.weight, moment1(kCount), moment2(kCount);
  Rng rng(9);
  double update_squares[2] = {}, error_squares[2] = {};  // of large and of small numbers
  for (int64_t step = 1; step <= 200; ++step) {
    state.draw_gradients(rng, 1);
    // Columns that differ by four orders of magnitude.
    for (size_t i = 0; i < kCount; ++i) state.grad[i] *= i % 7 == 0 ? 1e-4f : 1.0f;
    const std::vector<float> before = weight;
    state.weight = weight;
    AdamW args = state.args(step);
    adamw(*stream, args);
    args.weight = view_of(weight);
    args.moment1 = view_of(moment1);
    args.moment2 = view_of(moment2);
    adamw(*stream, args);
    for (size_t i = 0; i < kCount; ++i) {
      if (step < 20) continue;
      const size_t small = i % 7 == 0 ? 1 : 0;
      const double update = weight[i] - before[i];
      const double error = state.weight[i] - weight[i];
      update_squares[small] += update * update;
      error_squares[small] += error * error;
    }
  }
  EXPECT_LT(std::sqrt(error_squares[0] / update_squares[0]), 0.04);
  EXPECT_LT(std::sqrt(error_squares[1] / update_squares[1]), 0.4);
  for (size_t i = 0; i < kCount; ++i) {
    const float root = root_moment(state.moment2[i / kMomentBlock], i % kMomentBlock);
    const float want = std::sqrt(moment2[i]);
    EXPECT_NEAR(root, want, (i % 7 == 0 ? 1.0f : 0.1f) * want) << i;
    EXPECT_GE(root, state.moment2[i / kMomentBlock].scale);
  }
}

TEST(AdamWBlocks, NeverRoundsASecondMomentToZeroBesideALargeOne) {
  TestStream stream;
  for_each_isa([&] {
    BlockState state(kMomentBlock);
    std::ranges::fill(state.weight, 1.0f);
    std::ranges::fill(state.grad, 1e-6f);
    state.grad[5] = 1e4f;
    for (int64_t step = 1; step <= 50; ++step) adamw(*stream, state.args(step));
    for (size_t i = 0; i < kMomentBlock; ++i) {
      EXPECT_GT(root_moment(state.moment2[0], i), 0) << i;
      // No element moved further than Adam's rate allows.
      EXPECT_GT(state.weight[i], 1.0f - 50 * 3e-3f * 1.5f) << i;
    }
    // Those of the small ones, which share a block with one that is 1e10 as large, stand still.
    EXPECT_EQ(state.moment1[0].codes[0], 0);
    EXPECT_EQ(state.moment1[0].codes[5], 127);
    EXPECT_EQ(state.moment2[0].codes[0], -127);
  });
}

TEST(AdamWBlocks, TakesZerosDenormalsAndHugeGradientsLikeThePlainForm) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> cases = {
      {0.0f},         {-0.0f, 0.0f}, {kTiny},          {1e-38f, kTiny, 0.0f}, {1e-25f, -3e-26f},
      {1e-30f, 1.0f}, {kHuge},       {kHuge, -1e-30f}, {1e19f, 1.0f},         {-kHuge, kTiny, 1.0f},
  };
  for_each_isa([&] {
    TestStream stream;
    for (size_t c = 0; c < cases.size(); ++c) {
      BlockState state(300);
      BlockState plain(300);
      for (int64_t step = 1; step <= 5; ++step) {
        for (size_t i = 0; i < state.grad.size(); ++i) {
          // The last step has no gradient at all.
          state.grad[i] = step == 5 ? 0.0f : cases[c][(i + i / 128) % cases[c].size()];
        }
        plain.grad = state.grad;
        adamw(*stream, state.args(step));
        plain_step(plain, step);
        ASSERT_EQ(state.bytes(), plain.bytes()) << "case " << c << ", step " << step;
        for (const float w : state.weight) ASSERT_TRUE(std::isfinite(w)) << "case " << c;
        for (const MomentBlock& block : state.moment1) ASSERT_TRUE(std::isfinite(block.scale));
        for (const MomentBlock& block : state.moment2) ASSERT_TRUE(std::isfinite(block.scale));
      }
    }
  });
}

// A part from a block's border on changes that part alone, and the parts together the whole.
TEST(AdamWBlocks, PartsFromBorderToBorderGiveTheBitsOfTheWhole) {
  constexpr int64_t kCount = 1003;
  const cpu::AdamWFactors factors = {.grad_scale = 0.5f,
                                     .beta1 = 0.9f,
                                     .one_minus_beta1 = 0.1f,
                                     .beta2 = 0.95f,
                                     .one_minus_beta2 = 0.05f,
                                     .root_correction = 1.5f,
                                     .epsilon = 1e-8f,
                                     .decay = 0.999f,
                                     .step_size = 1e-3f};
  for_each_isa([&] {
    const auto run = [&](BlockState& state, int64_t begin, int64_t end) {
      cpu::adamw_block_kernels(active_isa())
          .step(
              {state.weight.data(), state.moment1.data(), state.moment2.data(), state.grad.data()},
              factors, begin, end);
    };
    BlockState whole(kCount);
    run(whole, 0, kCount);
    BlockState parts(kCount);
    const BlockState before = parts;
    run(parts, 256, 384);
    EXPECT_TRUE(
        std::equal(parts.weight.begin(), parts.weight.begin() + 256, before.weight.begin()));
    EXPECT_EQ(parts.weight[384], before.weight[384]);
    EXPECT_EQ(parts.moment1[1].scale, 0.0f);
    EXPECT_EQ(parts.moment1[3].scale, 0.0f);
    run(parts, 896, kCount);
    run(parts, 0, 256);
    run(parts, 384, 896);
    EXPECT_EQ(parts.bytes(), whole.bytes());
  });
}

TEST(AdamWBlocks, GivesTheSameBitsOnEveryInstructionSetAndNumberOfThreads) {
  expect_same_bits_everywhere([&](Stream& stream) {
    BlockState state(70001);
    for (int64_t step = 1; step <= 3; ++step) adamw(stream, state.args(step));
    return state.bytes();
  });
}

// Blocks of moments that end with rows of the packed form, and others.
TEST(AdamWBlocks, RenewsPackedFormsAsPackWeightDoes) {
  constexpr int64_t kRowsOfAll = 150;
  for_each_isa([&] {
    for (const int64_t columns : {64, 70, 132}) {
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 64}, {37, 101}, {96, 150}}) {
        TestStream stream(3);
        const Shape shape{end - begin, columns};
        BlockState plain(shape.count());
        BlockState packing(shape.count());
        const auto args_of = [&](BlockState& state) {
          AdamW args = state.args(1);
          for (TensorView* view : {&args.weight, &args.grad}) {
            view->shape = shape;
            view->row_stride = columns;
          }
          return args;
        };
        const AdamW plain_args = args_of(plain);
        adamw(*stream, plain_args);
        const auto bytes = static_cast<size_t>(
            packed_weight_bytes(DType::kF32, PackUse::kForward, kRowsOfAll, columns));
        std::vector<std::byte> want(bytes), got(bytes);
        PackedWeight packed = {want.data(), DType::kF32, PackUse::kForward, kRowsOfAll, columns};
        pack_weight(*stream, packed, plain_args.weight, begin);
        packed.data = got.data();
        AdamW args = args_of(packing);
        args.packs.push_back({packed, begin});
        adamw(*stream, args);
        EXPECT_EQ(packing.bytes(), plain.bytes()) << columns;
        EXPECT_TRUE(got == want) << columns << " columns, " << begin << " to " << end;
      }
    }
  });
}

TEST(MomentLayout, KeepsVectorsAndSmallMatricesInF32) {
  const auto dtype = [](const Shape& shape) {
    return moment_layout(MomentFormat::kQ8, shape).dtype;
  };
  EXPECT_EQ(dtype(Shape{4096}), DType::kF32);
  EXPECT_EQ(dtype(Shape{2, 63}), DType::kF32);
  EXPECT_EQ(dtype(Shape{2, 64}), DType::kU8);
  EXPECT_EQ(moment_layout(MomentFormat::kQ8, Shape{3, 100}).shape, (Shape{3, 132}));
  EXPECT_EQ(moment_layout(MomentFormat::kF32, Shape{3, 100}).shape, (Shape{3, 100}));
  EXPECT_EQ(moment_layout(MomentFormat::kF32, Shape{3, 100}).dtype, DType::kF32);
}

}  // namespace
}  // namespace jige::ops
