// The largest logits on a GPU, beside what a greedy draw on the host takes.
#include "ops/likeliest.h"

#include <cmath>
#include <limits>

#include "cuda/test_device.h"
#include "ops/sampling.h"

namespace jige {
namespace {

class CudaLikeliest : public CudaTest {
 protected:
  // Of both devices; -1 stands for what sample() refuses.
  void expect_greedy_draws(const Pair& logits) {
    to_gpu(logits);
    const int64_t rows = logits.host.rows();
    const Pair tokens = filled(DType::kI32, {rows});
    ops::likeliest(*cpu_stream_, tokens.host, logits.host);
    cpu_stream_->synchronize();
    ops::likeliest(*gpu_stream_, tokens.gpu, logits.gpu);
    std::vector<float> expected;
    for (int64_t row = 0; row < rows; ++row) {
      Rng rng(1);
      const auto columns = static_cast<size_t>(logits.host.columns());
      const auto drawn = ops::sample(
          {logits.host.as<float>() + row * logits.host.row_stride, columns}, {}, {}, {}, rng);
      expected.push_back(drawn ? static_cast<float>(drawn->token) : -1.0f);
    }
    EXPECT_EQ(values(tokens.host), expected) << columns_text(logits);
    EXPECT_EQ(gpu_values(tokens.gpu), expected) << columns_text(logits);
  }
  static std::string columns_text(const Pair& logits) { return logits.host.shape.to_string(); }
};

TEST_F(CudaLikeliest, IsWhatAGreedyDrawTakes) {
  for (const int64_t columns : {1, 7, 64, 4096, 4099, 9000}) {
    expect_greedy_draws(random(DType::kF32, {3, columns}));
  }
}

// The lowest index among equals, of one part or of several; zeros are equal whatever their sign.
TEST_F(CudaLikeliest, IsTheFirstOfEquals) {
  const Pair logits = random(DType::kF32, {4, 8200});
  for (const int64_t i : {5000, 4095, 17, 8199}) set(logits.host, i, 9.0f);
  for (int64_t i = 0; i < 8200; ++i) set(logits.host, 8200 + i, -1.0f);
  set(logits.host, 8200 + 300, -0.0f);
  set(logits.host, 8200 + 299, 0.0f);
  set(logits.host, 8200 + 8000, 0.0f);
  for (int64_t i = 0; i < 8199; ++i) set(logits.host, 2 * 8200 + i, -INFINITY);
  expect_greedy_draws(logits);
}

TEST_F(CudaLikeliest, IsNoneWhereADrawIsRefused) {
  const Pair logits = random(DType::kF32, {5, 5000});
  set(logits.host, 4999, std::numeric_limits<float>::quiet_NaN());
  set(logits.host, 5000 + 3, INFINITY);
  for (int64_t i = 0; i < 5000; ++i) set(logits.host, 2 * 5000 + i, -INFINITY);
  set(logits.host, 3 * 5000, std::numeric_limits<float>::quiet_NaN());
  set(logits.host, 3 * 5000 + 4200, 50.0f);
  expect_greedy_draws(logits);
}

}  // namespace
}  // namespace jige
