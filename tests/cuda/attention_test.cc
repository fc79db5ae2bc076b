// Attention over flat sequences on a GPU, beside the CPU's.
#include "ops/attention.h"

#include <cmath>

#include "cuda/test_device.h"

namespace jige {
namespace {

struct FlatCase {
  DType dtype = DType::kBF16;
  int64_t heads = 2;
  int64_t kv_heads = 1;
  int64_t dim = 64;
  std::vector<int32_t> lengths;
  int64_t window = 0;
  double cap = 0;
  bool sinks = false;

  std::string name() const {
    return std::string(dtype_info(dtype).name) + " " + std::to_string(heads) + "/" +
           std::to_string(kv_heads) + " heads of " + std::to_string(dim) + ", window " +
           std::to_string(window) + ", cap " + std::to_string(cap);
  }
};

class CudaAttention : public CudaTest {
 protected:
  // Tensors of a case; q, k and v are columns of one matrix, as their gradients are.
  struct Problem {
    FlatCase of;
    std::vector<ops::SequenceSpan> sequences;
    Pair qkv, dst, lse, sinks;

    ops::AttentionShape shape(bool on_gpu) const {
      return {.head_count = of.heads,
              .kv_head_count = of.kv_heads,
              .head_dim = of.dim,
              .scale = 1 / std::sqrt(static_cast<double>(of.dim)),
              .window = of.window,
              .cap = of.cap,
              .sinks = of.sinks ? (on_gpu ? sinks.gpu : sinks.host).as<float>() : nullptr};
    }
    TensorView q(const TensorView& fused) const { return fused.column_range(0, of.heads * of.dim); }
    TensorView k(const TensorView& fused) const {
      return fused.column_range(of.heads * of.dim, (of.heads + of.kv_heads) * of.dim);
    }
    TensorView v(const TensorView& fused) const {
      return fused.column_range((of.heads + of.kv_heads) * of.dim,
                                (of.heads + 2 * of.kv_heads) * of.dim);
    }
    double tolerance() const { return of.dtype == DType::kF32 ? 2e-5 : 1.5e-2; }
  };

  Problem make(const FlatCase& of) {
    Problem problem{.of = of, .sequences = {}, .qkv = {}, .dst = {}, .lse = {}, .sinks = {}};
    int32_t rows = 0;
    for (const int32_t length : of.lengths) {
      problem.sequences.push_back({.row_begin = rows, .row_count = length});
      rows += length;
    }
    problem.qkv = random(of.dtype, {rows, (of.heads + 2 * of.kv_heads) * of.dim});
    problem.dst = filled(of.dtype, {rows, of.heads * of.dim});
    problem.lse = filled(DType::kF32, {rows, of.heads});
    problem.sinks = random(DType::kF32, {of.heads});
    return problem;
  }

  void forward(const Problem& p) {
    for (const bool gpu : {false, true}) {
      const auto side = [&](const Pair& pair) { return gpu ? pair.gpu : pair.host; };
      const TensorView qkv = side(p.qkv);
      ops::attention_forward(gpu ? *gpu_stream_ : *cpu_stream_, {.dst = side(p.dst),
                                                                 .q = p.q(qkv),
                                                                 .k = p.k(qkv),
                                                                 .v = p.v(qkv),
                                                                 .lse = side(p.lse),
                                                                 .sequences = p.sequences,
                                                                 .shape = p.shape(gpu)});
    }
    expect_near(p.dst, p.tolerance(), "dst, " + p.of.name());
    expect_near(p.lse, p.of.dtype == DType::kF32 ? 2e-5 : 2e-4, "lse, " + p.of.name());
  }

  // After forward(); the CPU's results are what both go back from.
  void backward(const Problem& p) {
    to_gpu(p.dst);
    to_gpu(p.lse);
    const Pair grad_dst = random(p.of.dtype, p.dst.host.shape);
    const Pair grads = filled(p.of.dtype, p.qkv.host.shape);
    for (const bool gpu : {false, true}) {
      const auto side = [&](const Pair& pair) { return gpu ? pair.gpu : pair.host; };
      const TensorView qkv = side(p.qkv);
      const TensorView grad = side(grads);
      ops::attention_backward(gpu ? *gpu_stream_ : *cpu_stream_, {.grad_q = p.q(grad),
                                                                  .grad_k = p.k(grad),
                                                                  .grad_v = p.v(grad),
                                                                  .grad_dst = side(grad_dst),
                                                                  .q = p.q(qkv),
                                                                  .k = p.k(qkv),
                                                                  .v = p.v(qkv),
                                                                  .dst = side(p.dst),
                                                                  .lse = side(p.lse),
                                                                  .sequences = p.sequences,
                                                                  .shape = p.shape(gpu)});
    }
    expect_near(grads, 2 * p.tolerance(), "gradients, " + p.of.name());
  }

  struct Results {
    TensorView dst, lse, grads;
  };
  Results run_on_gpu(const Problem& p, const Pair& grad_dst) {
    const TensorView qkv = p.qkv.gpu;
    const TensorView grad = filled(p.of.dtype, p.qkv.host.shape).gpu;
    ops::attention_forward(*gpu_stream_, {.dst = p.dst.gpu,
                                          .q = p.q(qkv),
                                          .k = p.k(qkv),
                                          .v = p.v(qkv),
                                          .lse = p.lse.gpu,
                                          .sequences = p.sequences,
                                          .shape = p.shape(true)});
    ops::attention_backward(*gpu_stream_, {.grad_q = p.q(grad),
                                           .grad_k = p.k(grad),
                                           .grad_v = p.v(grad),
                                           .grad_dst = grad_dst.gpu,
                                           .q = p.q(qkv),
                                           .k = p.k(qkv),
                                           .v = p.v(qkv),
                                           .dst = p.dst.gpu,
                                           .lse = p.lse.gpu,
                                           .sequences = p.sequences,
                                           .shape = p.shape(true)});
    return {p.dst.gpu, p.lse.gpu, grad};
  }

  void expect_as_on_the_cpu(const FlatCase& of) {
    const Problem problem = make(of);
    forward(problem);
    backward(problem);
  }
};

TEST_F(CudaAttention, OnTensorCoresIsNearThatOfTheCpu) {
  expect_as_on_the_cpu({.dim = 64, .lengths = {1, 17, 130, 64}});
  expect_as_on_the_cpu({.heads = 3, .kv_heads = 3, .dim = 80, .lengths = {63, 65}});
  expect_as_on_the_cpu({.heads = 4, .kv_heads = 2, .dim = 96, .lengths = {65, 3}});
  expect_as_on_the_cpu({.heads = 2, .dim = 128, .lengths = {0, 16, 130}});
  expect_as_on_the_cpu({.heads = 1, .dim = 192, .lengths = {70}});
  expect_as_on_the_cpu({.heads = 2, .dim = 256, .lengths = {33, 66}});
}

// Of 128 queries, which many rows have.
TEST_F(CudaAttention, InLargeTilesIsNearThatOfTheCpu) {
  const int32_t many = test_device_is_emulated() ? 1 : 16;
  expect_as_on_the_cpu({.heads = 8, .kv_heads = 2, .lengths = {129 * many, 2}});
  expect_as_on_the_cpu({.heads = 9, .kv_heads = 3, .dim = 128, .lengths = {114 * many}});
  expect_as_on_the_cpu({.heads = 9, .dim = 256, .lengths = {114 * many}, .window = 20});
}

TEST_F(CudaAttention, OnTensorCoresTakesWindowsAndCaps) {
  expect_as_on_the_cpu({.dim = 64, .lengths = {200, 5}, .window = 1});
  expect_as_on_the_cpu({.dim = 64, .lengths = {290}, .window = 70, .cap = 2});
  expect_as_on_the_cpu({.heads = 1, .dim = 128, .lengths = {210}, .window = 33});
  expect_as_on_the_cpu({.heads = 1, .dim = 128, .lengths = {140}, .cap = 1});
  expect_as_on_the_cpu({.heads = 1, .dim = 256, .lengths = {140}, .window = 40, .cap = 3});
  expect_as_on_the_cpu({.heads = 1, .dim = 80, .lengths = {40}, .window = int64_t{1} << 40});
}

TEST_F(CudaAttention, InSinglePrecisionIsThatOfTheCpu) {
  for (const int64_t dim : {1, 40, 64, 130, 640}) {
    const int32_t length = dim > 100 ? 19 : 26;
    expect_as_on_the_cpu(
        {.dtype = DType::kF32, .heads = 4, .kv_heads = 2, .dim = dim, .lengths = {length, 1, 7}});
  }
  expect_as_on_the_cpu(
      {.dtype = DType::kF32, .heads = 3, .dim = 20, .lengths = {33}, .window = 7, .cap = 2});
}

TEST_F(CudaAttention, TakesOddHeadsOfBf16) {
  expect_as_on_the_cpu({.heads = 3, .kv_heads = 1, .dim = 40, .lengths = {30, 18}});
  expect_as_on_the_cpu({.heads = 1, .kv_heads = 1, .dim = 37, .lengths = {21}, .window = 5});
}

TEST_F(CudaAttention, HasSinks) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem p = make({.dtype = dtype, .heads = 4, .lengths = {40, 2}, .sinks = true});
    forward(p);
    backward(p);
    const Pair grad_dst = random(dtype, p.dst.host.shape);
    const Pair slopes = filled(DType::kF32, p.lse.host.shape);
    for (const bool gpu : {false, true}) {
      const auto side = [&](const Pair& pair) { return gpu ? pair.gpu : pair.host; };
      ops::attention_sink_slopes(gpu ? *gpu_stream_ : *cpu_stream_, {.slopes = side(slopes),
                                                                     .grad_dst = side(grad_dst),
                                                                     .dst = side(p.dst),
                                                                     .lse = side(p.lse),
                                                                     .shape = p.shape(gpu)});
    }
    expect_near(slopes, 1e-5);
  }
}

// Rows of a sequence have the same bits whatever stands beside it in the batch, also where that
// makes tiles large.
TEST_F(CudaAttention, DoesNotSeeNeighbours) {
  constexpr int32_t kBefore = 13;
  const int32_t length = test_device_is_emulated() ? 112 : 300;
  for (const int64_t dim : {64, 256}) {
    const FlatCase of{
        .heads = test_device_is_emulated() ? 8 : 22, .dim = dim, .lengths = {length}, .window = 20};
    FlatCase among = of;
    among.lengths = {kBefore, length, test_device_is_emulated() ? 3 : 8192};
    const Problem alone = make(of);
    const Problem packed = make(among);
    const Pair alone_grad = random(DType::kBF16, alone.dst.host.shape);
    const Pair packed_grad = random(DType::kBF16, packed.dst.host.shape);
    const auto own = [&](const TensorView& view) {
      return view.row_range(kBefore, kBefore + length);
    };
    const auto share = [&](const Pair& from, const Pair& to) {
      std::memcpy(own(to.host).data, from.host.data,
                  static_cast<size_t>(dtype_bytes(DType::kBF16, from.host.count())));
      to_gpu(to);
    };
    share(alone.qkv, packed.qkv);
    share(alone_grad, packed_grad);
    const Results one = run_on_gpu(alone, alone_grad);
    const Results other = run_on_gpu(packed, packed_grad);
    EXPECT_EQ(gpu_values(one.dst), gpu_values(own(other.dst))) << dim;
    EXPECT_EQ(gpu_values(one.lse), gpu_values(own(other.lse))) << dim;
    EXPECT_EQ(gpu_values(one.grads), gpu_values(own(other.grads))) << dim;
  }
}

}  // namespace
}  // namespace jige
