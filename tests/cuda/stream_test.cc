// What streams of a GPU give kernels besides.
#include <memory>
#include <numeric>

#include "cuda/test_device.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/linear_cuda.h"

namespace jige {
namespace {

class CudaStreams : public CudaTest {
 protected:
  // Repeated work that adds vectors which it uploads, in the order of their names.
  void add_uploads(const TensorView& sum, const std::vector<float>& a,
                   const std::vector<float>& b) {
    gpu_stream_->run_repeated([&] {
      const auto upload = [&](const std::vector<float>& values) {
        TensorView view = sum;
        view.data = const_cast<void*>(
            as_cuda(*gpu_stream_).upload(values.data(), std::ssize(values) * int64_t{4}));
        return view;
      };
      const TensorView left = upload(a);
      ops::add(*gpu_stream_, sum, left, upload(b));
    });
  }
};

// The first time the work is new, the second time it becomes a graph, which runs from then on,
// whatever it uploads; until that has no room.
TEST_F(CudaStreams, RepeatedWorkHasWhatItUploads) {
  for (const int64_t count : {3, 900, 5000, 7}) {
    std::vector<float> a(static_cast<size_t>(count));
    std::vector<float> b(static_cast<size_t>(count), 0.5f);
    std::iota(a.begin(), a.end(), 1.0f);
    const Pair sum = filled(DType::kF32, {1, count});
    for (int time = 0; time < 4; ++time) {
      add_uploads(sum.gpu, a, b);
      const std::vector<float> got = gpu_values(sum.gpu);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(got[i], a[i] + b[i]) << count << ", " << time;
      (time % 2 == 0 ? a : b).back() += 1;
    }
    add_uploads(sum.gpu, a, a);
    EXPECT_EQ(gpu_values(sum.gpu).back(), 2 * a.back());
  }
}

// The same where it waits for another stream's copy in the middle, which is new each time.
TEST_F(CudaStreams, WorkInPiecesHasWhatItUploadsAndWaitsForOtherStreams) {
  const bool before = set_streams_late(true);
  const std::unique_ptr<Stream> computes = *gpu_->make_stream();
  const std::unique_ptr<Stream> copies = *gpu_->make_stream();
  constexpr int64_t kCount = 900;
  std::vector<float> a(kCount, 0.25f);
  std::vector<float> b(kCount);
  const Pair sum = filled(DType::kF32, {1, kCount});
  const Pair other = filled(DType::kF32, {1, kCount});
  for (int time = 0; time < 5; ++time) {
    std::iota(b.begin(), b.end(), static_cast<float>(time));
    a.back() += 1;
    copies->copy(other.gpu.data, b.data(), kCount * 4, CopyKind::kHostToDevice);
    const Event copied = copies->record();
    int runs = 0;
    computes->run_in_pieces([&] {
      TensorView left = sum.gpu;
      left.data = const_cast<void*>(as_cuda(*computes).upload(a.data(), kCount * 4));
      if (!computes->records_only()) {
        ++runs;
        computes->wait(copied);
      }
      ops::add(*computes, sum.gpu, left, other.gpu);
    });
    EXPECT_EQ(runs, 1);
    EXPECT_FALSE(computes->records_only());
    computes->synchronize();
    const std::vector<float> got = gpu_values(sum.gpu);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(got[i], a[i] + b[i]) << time;
  }
  set_streams_late(before);
}

// What was recorded only is not done: sums would have it twice.
TEST_F(CudaStreams, RepeatedProductsAreMadeOnce) {
  if (const Status ready = ops::cuda_matmul_ready(); !ready) GTEST_SKIP() << ready.error().message;
  const Pair src = random(DType::kBF16, {24, 16});
  const Pair grad = filled(DType::kF32, {16, 16});
  gpu_stream_->fill_zero(grad.gpu.data, grad.gpu.count() * 4);
  const auto add_product = [&] {
    ops::linear_backward_weight(*gpu_stream_, {.grad_weight = grad.gpu,
                                               .grad_dst = src.gpu,
                                               .src = src.gpu,
                                               .compute = DType::kBF16,
                                               .scratch = {}});
  };
  add_product();
  const std::vector<float> once = gpu_values(grad.gpu);
  for (int times = 2; times <= 4; ++times) {
    gpu_stream_->run_repeated(add_product);
    const std::vector<float> got = gpu_values(grad.gpu);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], static_cast<float>(times) * once[i], 1e-3);
    }
  }
}

}  // namespace
}  // namespace jige
