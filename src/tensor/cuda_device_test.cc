#include "tensor/cuda_device.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tensor/arena.h"

namespace jige {
namespace {

TEST(CudaDevice, SaysWhyThereIsNoGpu) {
  const auto infos = list_cuda_devices();
  if (infos && !infos->empty()) GTEST_SKIP() << "this machine has a GPU";
  const auto device = make_cuda_device(0);
  ASSERT_FALSE(device);
  EXPECT_FALSE(device.error().message.empty());
  if (!cuda_built()) {
    EXPECT_EQ(device.error().code, Code::kUnsupported);
  }
}

TEST(CudaDevice, CopiesThereAndBackInStreamOrder) {
  const auto made = make_cuda_device(0);
  if (!made) GTEST_SKIP() << made.error().message;
  Device& device = **made;
  Arena arena(device, "test");
  const auto stream = device.make_stream();
  const auto other = device.make_stream();
  ASSERT_TRUE(stream && other);
  std::vector<int32_t> sent(1 << 16);
  std::iota(sent.begin(), sent.end(), 0);
  const auto bytes = static_cast<int64_t>(sent.size() * sizeof(int32_t));
  auto tensor = arena.make(DType::kI32, Shape{static_cast<int64_t>(sent.size())});
  ASSERT_TRUE(tensor);
  (*stream)->copy(tensor->view().data, sent.data(), bytes, CopyKind::kHostToDevice);
  (*other)->wait((*stream)->record());
  std::vector<int32_t> received(sent.size());
  (*other)->copy(received.data(), tensor->view().data, bytes, CopyKind::kDeviceToHost);
  (*other)->synchronize();
  EXPECT_EQ(sent, received);
}

TEST(CudaDevice, ReportsExhaustedMemoryAsAValue) {
  const auto made = make_cuda_device(0);
  if (!made) GTEST_SKIP() << made.error().message;
  const auto huge = (*made)->allocate(int64_t{1} << 50);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace jige
