// Sums, scalings, embeddings and dropout on a GPU, beside those of the CPU.
#include "ops/elementwise.h"

#include "cuda/test_device.h"
#include "ops/dropout.h"

namespace jige {
namespace {

class CudaElementwise : public CudaTest {
 protected:
  // Columns [begin, end) of both.
  static Pair columns(const Pair& pair, int64_t begin, int64_t end) {
    return {pair.host.column_range(begin, end), pair.gpu.column_range(begin, end)};
  }
  // Calls test(whole tensor, what is worked on) for matrices of odd widths, with and without gaps
  // between rows, and aligned and not.
  template <typename Test>
  void for_views(DType dtype, Test test) {
    for (const int64_t width : {1, 33, 64, 1000}) {
      const Pair whole = random(dtype, {7, width});
      test(whole, whole);
    }
    const Pair whole = random(dtype, {5, 80});
    test(whole, columns(whole, 16, 72));
    test(whole, columns(whole, 16, 61));
    test(whole, columns(whole, 3, 35));
    const Pair odd = random(dtype, {5, 81});
    test(odd, columns(odd, 0, 64));
    const Pair large = random(dtype, {test_device_is_emulated() ? 3 : 3000, 4096});
    test(large, large);
  }
};

TEST_F(CudaElementwise, AddsAsTheCpuDoes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const DType other : {DType::kF32, DType::kBF16}) {
      for_views(dtype, [&](const Pair& whole, const Pair& dst) {
        const Pair a = random(other, {dst.host.rows(), dst.host.columns()});
        ops::add(*cpu_stream_, dst.host, a.host, dst.host);
        ops::add(*gpu_stream_, dst.gpu, a.gpu, dst.gpu);
        expect_equal(whole);
      });
    }
  }
}

TEST_F(CudaElementwise, ScalesAndConvertsAsTheCpuDoes) {
  const Pair factor = random(DType::kF32, {1});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for_views(dtype, [&](const Pair& whole, const Pair& dst) {
      const Pair src = random(DType::kF32, {dst.host.rows(), dst.host.columns()});
      ops::scale(*cpu_stream_, dst.host, src.host, 0.3f);
      ops::scale(*gpu_stream_, dst.gpu, src.gpu, 0.3f);
      expect_equal(whole);
      ops::scale_by(*cpu_stream_, dst.host, dst.host, factor.host);
      ops::scale_by(*gpu_stream_, dst.gpu, dst.gpu, factor.gpu);
      expect_equal(whole);
    });
  }
}

TEST_F(CudaElementwise, ScalesColumnsAsTheCpuDoes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for_views(dtype, [&](const Pair& whole, const Pair& dst) {
      const Pair factor = random(DType::kF32, {dst.host.columns()});
      const Pair addend = random(DType::kF32, {dst.host.columns()});
      for (const auto& [by, plus] : {std::pair{true, true}, {true, false}, {false, true}}) {
        const auto on = [&](const Pair& numbers, bool wanted, bool gpu) {
          return wanted ? (gpu ? numbers.gpu : numbers.host) : TensorView{};
        };
        ops::scale_columns(*cpu_stream_, dst.host, dst.host, on(factor, by, false),
                           on(addend, plus, false));
        ops::scale_columns(*gpu_stream_, dst.gpu, dst.gpu, on(factor, by, true),
                           on(addend, plus, true));
        expect_equal(whole);
      }
    });
  }
}

TEST_F(CudaElementwise, CapsSoftly) {
  for_views(DType::kF32, [&](const Pair& whole, const Pair& data) {
    ops::soft_cap(*cpu_stream_, data.host, 1.5);
    ops::soft_cap(*gpu_stream_, data.gpu, 1.5);
    expect_near(whole, 1e-6);
  });
}

TEST_F(CudaElementwise, ZeroesNothingElse) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for_views(dtype, [&](const Pair& whole, const Pair& dst) {
      ops::zero(*cpu_stream_, dst.host);
      ops::zero(*gpu_stream_, dst.gpu);
      expect_equal(whole);
    });
  }
}

TEST_F(CudaElementwise, DropsWhatTheCpuDrops) {
  ops::Dropout dropout = {.rate = 0.3, .key = 0x123456789abcdef0u, .token_begin = 1 << 30};
  constexpr uint64_t kSite = (uint64_t{3} << 40) + 5;
  for (const bool one_mask : {false, true}) {
    dropout.one_mask = one_mask;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for_views(dtype, [&](const Pair& whole, const Pair& dst) {
        const Pair src = random(DType::kBF16, {dst.host.rows(), dst.host.columns()});
        ops::dropout(*cpu_stream_, dst.host, src.host, dropout, kSite);
        ops::dropout(*gpu_stream_, dst.gpu, src.gpu, dropout, kSite);
        expect_equal(whole);
      });
    }
  }
}

TEST_F(CudaElementwise, PicksRowsOfEmbeddings) {
  const Pair tokens = integers({3, 0, 9, 3, 3});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for_views(DType::kF32, [&](const Pair& whole, const Pair& dst) {
      if (dst.host.rows() != 5) return;
      const Pair table = random(dtype, {10, dst.host.columns()});
      ops::embedding_forward(*cpu_stream_, dst.host, table.host, tokens.host);
      ops::embedding_forward(*gpu_stream_, dst.gpu, table.gpu, tokens.gpu);
      expect_equal(whole);
    });
  }
}

TEST_F(CudaElementwise, AddsGradientsOfEmbeddingsInTheOrderOfTheCpu) {
  const int64_t vocabulary = 50;
  for (const int64_t count : {1, 40, 300, test_device_is_emulated() ? 1100 : 20000}) {
    for (const int64_t width : {8, 33}) {
      std::vector<int32_t> values(static_cast<size_t>(count));
      for (int32_t& value : values) {
        const auto any = static_cast<int32_t>(random_.below(uint64_t{vocabulary}));
        value = random_.below(2) == 0 ? 7 : any;
      }
      const Pair tokens = integers(values);
      const Pair grad_table = random(DType::kF32, {vocabulary, width});
      const Pair grad_dst = random(DType::kF32, {count, width});
      ops::embedding_backward(*cpu_stream_, grad_table.host, grad_dst.host, tokens.host);
      ops::embedding_backward(*gpu_stream_, grad_table.gpu, grad_dst.gpu, tokens.gpu);
      expect_equal(grad_table, fmt::format("{} tokens", count));
    }
  }
}

}  // namespace
}  // namespace jige
