// Cross-entropy, AdamW and sums of squares on a GPU, beside those of the CPU.
#include <array>
#include <cmath>
#include <limits>

#include "cuda/test_device.h"
#include "ops/adamw.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/moments.h"

namespace jige {
namespace {

class CudaLoss : public CudaTest {
 protected:
  // Columns [begin, begin + count) of both.
  static Pair columns(const Pair& pair, int64_t begin, int64_t count) {
    return {pair.host.column_range(begin, begin + count),
            pair.gpu.column_range(begin, begin + count)};
  }
  // Targets of any kind, among them the first and the last token and none.
  Pair targets(int64_t rows, int64_t vocabulary) {
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t kind = t % 4;
      tokens.push_back(static_cast<int32_t>(
          kind == 0   ? 0
          : kind == 1 ? vocabulary - 1
          : kind == 2 ? -1
                      : static_cast<int64_t>(random_.below(static_cast<uint64_t>(vocabulary)))));
    }
    return integers(tokens);
  }
};

TEST_F(CudaLoss, CrossEntropyIsThatOfTheCpu) {
  // The last ones do not fit into shared memory, one block on a multiprocessor and two.
  std::vector<int64_t> vocabularies = {1, 2, 3, 7, 64, 1001, 4099, 25700, 53001};
  if (!test_device_is_emulated()) vocabularies.insert(vocabularies.end(), {151936, 262144});
  for (const int64_t vocabulary : vocabularies) {
    for (const double cap : {0.0, 3.0}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const int64_t rows = vocabulary > 5000 ? 2 : 5;
        const Pair logits = random(DType::kF32, {rows, vocabulary}, 4.0f);
        const Pair weights = random(DType::kF32, {rows});
        const Pair goals = targets(rows, vocabulary);
        const Pair loss = filled(DType::kF32, {rows});
        const Pair grad = filled(dtype, {rows, vocabulary});
        ops::cross_entropy(*cpu_stream_,
                           {loss.host, logits.host, goals.host, weights.host, cap, grad.host});
        ops::cross_entropy(*gpu_stream_,
                           {loss.gpu, logits.gpu, goals.gpu, weights.gpu, cap, grad.gpu});
        const std::string what = std::to_string(vocabulary) + " cap " + std::to_string(cap);
        expect_near(loss, 3e-6, what);
        // Differences are left where numbers nearly cancel: at targets, and where a cap is flat.
        const std::vector<float> want = values(grad.host);
        const std::vector<float> got = gpu_values(grad.gpu);
        const double rounding = dtype == DType::kF32 ? 1e-5 : 0x1p-7;
        for (size_t i = 0; i < want.size(); ++i) {
          const auto row = static_cast<int64_t>(i) / vocabulary;
          const auto token = static_cast<float>(static_cast<int64_t>(i) % vocabulary);
          const double left = cap > 0 || token == get(goals.host, row) ? 3e-7 : 1e-30;
          ASSERT_LE(std::abs(double{got[i]} - double{want[i]}),
                    rounding * std::abs(double{want[i]}) + left)
              << what << " element " << i << ": " << got[i] << ", not " << want[i];
        }
      }
    }
  }
}

// Rows that begin at any address, and a gradient in the logits' memory.
TEST_F(CudaLoss, CrossEntropyTakesRowsAtAnyAddressAndOverwritesLogits) {
  constexpr int64_t kRows = 4;
  for (const int64_t begin : {0, 1, 2, 3}) {
    for (const int64_t stride : {2051, 2052}) {
      const int64_t vocabulary = 2047 - begin;
      const Pair whole = random(DType::kF32, {kRows, stride}, 3.0f);
      const Pair logits = columns(whole, begin, vocabulary);
      const Pair apart = filled(DType::kBF16, {kRows, stride});
      const Pair grad = columns(apart, 3 - begin, vocabulary);
      const Pair goals = targets(kRows, vocabulary);
      const Pair loss = filled(DType::kF32, {kRows});
      const auto run = [&](Stream& stream, TensorView Pair::*side, bool in_place) {
        ops::cross_entropy(stream, {.loss = loss.*side,
                                    .logits = logits.*side,
                                    .targets = goals.*side,
                                    .grad_logits = in_place ? logits.*side : grad.*side});
      };
      for (const bool in_place : {false, true}) {
        run(*cpu_stream_, &Pair::host, in_place);
        run(*gpu_stream_, &Pair::gpu, in_place);
        expect_near(loss, 3e-6);
        if (in_place) expect_near(whole, 1e-6);
      }
      const std::vector<float> want = values(apart.host);
      const std::vector<float> got = gpu_values(apart.gpu);
      for (size_t i = 0; i < want.size(); ++i) {
        if (std::isnan(want[i])) {  // between rows
          ASSERT_TRUE(std::isnan(got[i])) << i;
        } else {
          ASSERT_LE(std::abs(got[i] - want[i]), 0x1p-7f * std::abs(want[i]) + 3e-7f) << i;
        }
      }
    }
  }
}

TEST_F(CudaLoss, CrossEntropyOfUnusableLogitsOrTargetsIsNotFinite) {
  constexpr int64_t kVocabulary = 100;
  const float infinity = std::numeric_limits<float>::infinity();
  const Pair logits = random(DType::kF32, {5, kVocabulary});
  set(logits.host, 0 * kVocabulary + 17, std::numeric_limits<float>::quiet_NaN());
  set(logits.host, 1 * kVocabulary + 17, infinity);
  set(logits.host, 2 * kVocabulary + 17, -infinity);  // a token that cannot be is no harm
  to_gpu(logits);
  const Pair goals = integers({3, 3, 3, kVocabulary, 3});
  const Pair loss = filled(DType::kF32, {5});
  const Pair grad = filled(DType::kF32, {5, kVocabulary});
  ops::cross_entropy(
      *gpu_stream_,
      {.loss = loss.gpu, .logits = logits.gpu, .targets = goals.gpu, .grad_logits = grad.gpu});
  const std::vector<float> losses = gpu_values(loss.gpu);
  const std::vector<float> grads = gpu_values(grad.gpu);
  for (const size_t t : {0, 1, 3}) EXPECT_FALSE(std::isfinite(losses[t])) << t;
  EXPECT_TRUE(std::isnan(grads[3 * kVocabulary]));
  for (const size_t t : {2, 4}) EXPECT_TRUE(std::isfinite(losses[t])) << t;
  EXPECT_EQ(grads[2 * kVocabulary + 17], 0);
}

TEST_F(CudaLoss, AdamWHasTheBitsOfTheCpuWithEitherKindOfMoments) {
  for (const ops::MomentFormat format : {ops::MomentFormat::kF32, ops::MomentFormat::kQ8}) {
    for (const int64_t columns : {1, 127, 500}) {
      const Shape shape{7, columns};
      const Pair weight = random(DType::kF32, shape);
      const Pair grad = random(DType::kF32, shape, 0.3f);
      const ops::MomentLayout layout = ops::moment_layout(format, shape);
      std::array<Pair, 2> moments;
      for (Pair& moment : moments) {
        moment = filled(layout.dtype, layout.shape);
        std::memset(moment.host.data, 0,
                    static_cast<size_t>(dtype_bytes(layout.dtype, layout.shape.count())));
        to_gpu(moment);
      }
      for (int64_t step = 1; step <= 4; ++step) {
        const auto run = [&](Stream& stream, TensorView Pair::*side) {
          ops::adamw(stream, {.weight = weight.*side,
                              .moment1 = moments[0].*side,
                              .moment2 = moments[1].*side,
                              .grad = grad.*side,
                              .learning_rate = 3e-3,
                              .weight_decay = 0.1,
                              .step = step,
                              .grad_scale = 0.7});
        };
        run(*cpu_stream_, &Pair::host);
        run(*gpu_stream_, &Pair::gpu);
      }
      expect_equal(weight);
      for (const Pair& moment : moments) {
        std::vector<std::byte> got(
            static_cast<size_t>(dtype_bytes(layout.dtype, layout.shape.count())));
        gpu_stream_->copy(got.data(), moment.gpu.data, static_cast<int64_t>(got.size()),
                          CopyKind::kDeviceToHost);
        gpu_stream_->synchronize();
        EXPECT_EQ(std::memcmp(got.data(), moment.host.data, got.size()), 0) << columns;
      }
    }
  }
}

// Parts of arrays, which begin anywhere.
TEST_F(CudaLoss, AdamWTakesArraysAtAnyAddress) {
  const Shape whole{1003};
  const Pair weight = random(DType::kF32, whole);
  const Pair grad = random(DType::kF32, whole);
  const std::array<Pair, 2> moments = {random(DType::kF32, whole), random(DType::kF32, whole)};
  for (int64_t i = 0; i < whole.count(); ++i) {
    set(moments[1].host, i, std::abs(get(moments[1].host, i)));
  }
  to_gpu(moments[1]);
  const auto run = [&](Stream& stream, TensorView Pair::*side) {
    const auto part = [&](const Pair& pair, int64_t begin) {
      return (pair.*side).row_range(begin, begin + 998);
    };
    ops::adamw(stream, {.weight = part(weight, 1),
                        .moment1 = part(moments[0], 4),
                        .moment2 = part(moments[1], 0),
                        .grad = part(grad, 5),
                        .learning_rate = 1e-3});
  };
  run(*cpu_stream_, &Pair::host);
  run(*gpu_stream_, &Pair::gpu);
  for (const Pair& pair : {weight, grad, moments[0], moments[1]}) expect_equal(pair);
}

// Of a part of a fused weight: rows of the compute type, whatever the use, behind 64 bytes.
TEST_F(CudaLoss, AdamWRenewsPackedForms) {
  constexpr int64_t kRowsOfAll = 9;
  for (const ops::MomentFormat format : {ops::MomentFormat::kF32, ops::MomentFormat::kQ8}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const int64_t columns : {52, 65}) {
        const Shape shape{5, columns};
        const Pair weight = random(DType::kF32, shape);
        const Pair grad = random(DType::kF32, shape);
        const ops::MomentLayout layout = ops::moment_layout(format, shape);
        const std::array<Pair, 2> moments = {filled(layout.dtype, layout.shape),
                                             filled(layout.dtype, layout.shape)};
        ops::AdamW args = {.weight = weight.gpu,
                           .moment1 = moments[0].gpu,
                           .moment2 = moments[1].gpu,
                           .grad = grad.gpu,
                           .learning_rate = 1e-3};
        for (const Pair& moment : moments) {
          gpu_stream_->fill_zero(moment.gpu.data, dtype_bytes(layout.dtype, layout.shape.count()));
        }
        std::vector<Pair> packed;
        for (const ops::PackUse use : {ops::PackUse::kForward, ops::PackUse::kInputGradient}) {
          const int64_t bytes = ops::packed_weight_bytes(compute, use, kRowsOfAll, columns);
          packed.push_back(filled(DType::kU8, {bytes}));
          args.packs.push_back({{packed.back().gpu.data, compute, use, kRowsOfAll, columns}, 3});
        }
        ops::adamw(*gpu_stream_, args);
        const std::vector<float> want = gpu_values(weight.gpu);
        for (const Pair& one : packed) {
          const TensorView rows = TensorView::of(static_cast<std::byte*>(one.gpu.data) + 64,
                                                 compute, {kRowsOfAll, columns});
          const std::vector<float> got = gpu_values(rows);
          for (int64_t i = 0; i < rows.count(); ++i) {
            const int64_t at = i - 3 * columns;
            const auto value = static_cast<size_t>(i);
            if (at < 0 || at >= shape.count()) {
              ASSERT_TRUE(std::isnan(got[value])) << i;
              continue;
            }
            const float exact = want[static_cast<size_t>(at)];
            ASSERT_EQ(got[value], compute == DType::kF32 ? exact : to_float(to_bfloat16(exact)))
                << i;
          }
        }
      }
    }
  }
}

TEST_F(CudaLoss, SumsOfSquaresOfManyTensors) {
  std::vector<Pair> tensors;
  for (const int64_t count : {3, 0, 1, 4096, 70001, 32768, 0}) {
    tensors.push_back(random(DType::kF32, {count}));
  }
  tensors.push_back({tensors[4].host.row_range(1, 70000), tensors[4].gpu.row_range(1, 70000)});
  std::vector<TensorView> host, gpu;
  for (const Pair& tensor : tensors) {
    host.push_back(tensor.host);
    gpu.push_back(tensor.gpu);
  }
  std::vector<double> want(tensors.size(), -1.0), got(tensors.size(), -1.0);
  ops::sums_of_squares(*cpu_stream_, host, want.data());
  ops::sums_of_squares(*gpu_stream_, gpu, got.data());
  cpu_stream_->synchronize();
  gpu_stream_->synchronize();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13 * want[i]) << i;
  // The same elements at another address.
  const Pair moved = random(DType::kF32, {70004});
  gpu_stream_->copy(moved.gpu.row_range(3, 70004).data, tensors[4].gpu.data, 70001 * 4,
                    CopyKind::kDeviceToDevice);
  double again = 0;
  ops::sums_of_squares(*gpu_stream_, {{moved.gpu.row_range(3, 70004)}}, &again);
  gpu_stream_->synchronize();
  EXPECT_EQ(again, got[4]);
}

TEST_F(CudaLoss, SumsOfSquaresOfElementsThatAreNotFiniteAreNot) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Pair tensor = random(DType::kF32, {40000});
    set(tensor.host, 39999, bad);
    to_gpu(tensor);
    double result = 0;
    ops::sums_of_squares(*gpu_stream_, {{tensor.gpu}}, &result);
    gpu_stream_->synchronize();
    EXPECT_FALSE(std::isfinite(result));
  }
}

}  // namespace
}  // namespace jige
