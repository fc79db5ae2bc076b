// GPUs of different kinds in one process: each is asked for what its own blocks may have, whichever
// the thread worked for before. On emulated GPUs alone, where a kernel that asks for more ends the
// process.
#include <cstdlib>
#include <memory>
#include <vector>

#include "cuda/test_device.h"
#include "ops/cross_entropy.h"

namespace jige {
namespace {

class CudaUnequalGpus : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (!test_device_is_emulated()) GTEST_SKIP() << "of emulated GPUs alone";
    offer_gpus(2);
    // A GPU of a data centre, and one of a desktop.
    setenv("JIGE_EMULATED_SHARED_KIB", "227,99", 1);
  }
  void TearDown() override {
    unsetenv("JIGE_EMULATED_SHARED_KIB");
    offer_gpus(1);
  }

  struct Place {
    std::unique_ptr<Device> gpu;
    std::unique_ptr<Arena> arena;
    std::unique_ptr<Stream> stream;
  };
  static Place place(int index) {
    Place made{.gpu = *make_cuda_device(index)};
    made.arena = std::make_unique<Arena>(*made.gpu, "gpu");
    made.stream = *made.gpu->make_stream();
    return made;
  }
  // Losses of a vocabulary whose rows of gradients are larger than what a desktop's blocks may
  // have.
  static std::vector<float> losses_on(const Place& place) {
    constexpr int64_t kRows = 2, kVocabulary = 53001;
    std::vector<float> logits(kRows * kVocabulary);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 97) * 0.05f;
    const std::vector<float> weights(kRows, 1.0f);
    const std::vector<int32_t> targets = {5, 52000};
    const auto on_gpu = [&](DType dtype, const Shape& shape, const void* data) {
      Tensor tensor = *place.arena->make(dtype, shape);
      if (data) {
        place.stream->copy(tensor.view().data, data, dtype_bytes(dtype, shape.count()),
                           CopyKind::kHostToDevice);
      }
      return tensor;
    };
    const Tensor given = on_gpu(DType::kF32, {kRows, kVocabulary}, logits.data());
    const Tensor weight = on_gpu(DType::kF32, {kRows}, weights.data());
    const Tensor goals = on_gpu(DType::kI32, {kRows}, targets.data());
    const Tensor loss = on_gpu(DType::kF32, {kRows}, nullptr);
    const Tensor grad = on_gpu(DType::kF32, {kRows, kVocabulary}, nullptr);
    ops::cross_entropy(*place.stream,
                       {loss.view(), given.view(), goals.view(), weight.view(), 0.0, grad.view()});
    std::vector<float> back(kRows);
    place.stream->copy(back.data(), loss.view().data, kRows * 4, CopyKind::kDeviceToHost);
    place.stream->synchronize();
    return back;
  }
};

TEST_F(CudaUnequalGpus, TakeNoMoreSharedMemoryThanEachHas) {
  const Place large = place(0), small = place(1);
  const std::vector<float> expected = losses_on(large);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(losses_on(small), expected);
    EXPECT_EQ(losses_on(large), expected);
  }
}

}  // namespace
}  // namespace jige
