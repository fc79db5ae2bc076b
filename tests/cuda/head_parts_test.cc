// Parts of heads and products of heads on a GPU, beside those of the CPU.
#include "ops/head_parts.h"

#include "cuda/test_device.h"
#include "ops/head_linear.h"

namespace jige {
namespace {

using ops::PackUse;

class CudaHeadParts : public CudaTest {
 protected:
  struct Sizes {
    int64_t rows, heads, own, shared, value;
    int64_t gap = 0;  // between rows
  };
  // The first columns of a wider matrix of random numbers.
  Pair matrix(DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    const Pair wide = random(dtype, {rows, columns + gap});
    return {wide.host.column_range(0, columns), wide.gpu.column_range(0, columns)};
  }
  void expect_same(const Pair& pair) {
    for (int64_t row = 0; row < pair.host.rows(); ++row) {
      expect_equal({pair.host.row_range(row, row + 1), pair.gpu.row_range(row, row + 1)});
    }
  }
  // Calls test(sizes, type) for sizes in vectors and others.
  template <typename Test>
  void for_sizes(Test test) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Sizes& sizes :
           {Sizes{3, 4, 16, 8, 24}, Sizes{3, 2, 8, 16, 8, 8}, Sizes{2, 3, 33, 18, 17},
            Sizes{2, 3, 16, 8, 16, 3}, Sizes{2, 3, 0, 6, 5}, Sizes{0, 2, 8, 8, 8}}) {
        test(sizes, dtype);
      }
    }
  }
};

TEST_F(CudaHeadParts, AreJoinedAndTakenApartAsByTheCpu) {
  for_sizes([&](const Sizes& s, DType dtype) {
    const Pair keys = matrix(dtype, s.rows, s.heads * (s.own + s.shared), s.gap);
    const Pair values = matrix(dtype, s.rows, s.heads * (s.own + s.shared), s.gap);
    const Pair parts = matrix(dtype, s.rows, s.heads * (s.own + s.value), s.gap);
    const Pair shared = matrix(dtype, s.rows, s.shared, s.gap);
    const auto args = [&](TensorView Pair::*side) -> ops::HeadParts {
      return {keys.*side, values.*side, parts.*side, shared.*side, s.heads, s.value};
    };
    ops::join_heads_backward(*cpu_stream_, args(&Pair::host));
    ops::join_heads_backward(*gpu_stream_, args(&Pair::gpu));
    expect_same(parts);
    expect_same(shared);
    ops::join_heads(*cpu_stream_, args(&Pair::host));
    ops::join_heads(*gpu_stream_, args(&Pair::gpu));
    expect_same(keys);
    expect_same(values);
  });
}

TEST_F(CudaHeadParts, AreFittedAsByTheCpu) {
  for_sizes([&](const Sizes& s, DType dtype) {
    const int64_t wide = s.own + s.shared;
    for (const auto& [to, from, to_first, from_first] :
         {std::array{wide, s.value, int64_t{0}, int64_t{0}},
          {s.value, wide, 0, 0},
          {wide, wide, s.own, s.own},
          {wide, s.value, 0, s.value}}) {
      const Pair dst = matrix(dtype, s.rows, s.heads * to, s.gap);
      const Pair src = matrix(dtype, s.rows, s.heads * from, s.gap);
      ops::fit_heads(*cpu_stream_, {dst.host, src.host, s.heads, to_first, from_first});
      ops::fit_heads(*gpu_stream_, {dst.gpu, src.gpu, s.heads, to_first, from_first});
      expect_same(dst);
    }
  });
}

class CudaHeadLinear : public CudaHeadParts {
 protected:
  struct Case {
    int64_t rows, n, k;
    PackUse use;
    DType compute;
    int64_t gap = 0;  // behind the columns of a head
    int64_t heads = 3;
  };
  // Products of both, and of the GPU's first row alone.
  void expect_as_the_cpu(const Case& c) {
    const bool forward = c.use == PackUse::kForward;
    const Pair weight = random(DType::kF16, {c.heads * c.n, c.k});
    const int64_t bytes = (ops::packed_weight_bytes(c.compute, c.use, c.n, c.k) + 63) / 64 * 64;
    const Pair memory = filled(DType::kU8, {c.heads * bytes});
    const Pair dst = random(c.compute, {c.rows, c.heads * ((forward ? c.n : c.k) + c.gap)});
    const Pair src = random(c.compute, {c.rows, c.heads * ((forward ? c.k : c.n) + c.gap)});
    const auto multiply = [&](Stream& stream, TensorView Pair::*side) {
      const ops::HeadWeights weights = {
          {(memory.*side).data, c.compute, c.use, c.n, c.k}, bytes, c.heads};
      for (int64_t head = 0; head < c.heads; ++head) {
        ops::pack_head_weight(stream, weights, head,
                              (weight.*side).row_range(head * c.n, (head + 1) * c.n));
      }
      ops::head_linear(stream, {dst.*side, src.*side, weights});
      return weights;
    };
    multiply(*cpu_stream_, &Pair::host);
    const ops::HeadWeights weights = multiply(*gpu_stream_, &Pair::gpu);
    const std::string what = fmt::format("{} rows of [{}, {}]", c.rows, c.n, c.k);
    if (c.compute == DType::kF32) return expect_equal(dst, what);
    expect_near(dst, 0.01, what);
    if (c.rows == 0 || c.rows > 16) return;
    const std::vector<float> before = gpu_values(dst.gpu);
    ops::head_linear(*gpu_stream_, {dst.gpu.row_range(0, 1), src.gpu.row_range(0, 1), weights});
    EXPECT_EQ(gpu_values(dst.gpu), before);
  }
};

TEST_F(CudaHeadLinear, HasTheProductsOfTheCpu) {
  for (const PackUse use : {PackUse::kForward, PackUse::kInputGradient}) {
    expect_as_the_cpu({.rows = 5, .n = 10, .k = 33, .use = use, .compute = DType::kF32});
    for (const int64_t rows : {1, 11, 20}) {
      expect_as_the_cpu(
          {.rows = rows, .n = 72, .k = 48, .use = use, .compute = DType::kBF16, .gap = 8});
    }
    for (const int64_t rows : {4, 17}) {  // that neither vectors nor cuBLASLt take
      expect_as_the_cpu(
          {.rows = rows, .n = 10, .k = 16, .use = use, .compute = DType::kBF16, .gap = 1});
    }
  }
  expect_as_the_cpu(
      {.rows = 0, .n = 16, .k = 16, .use = PackUse::kForward, .compute = DType::kBF16});
}

}  // namespace
}  // namespace jige
