// The emulated GPU against what a GPU's instructions are documented to do, so that kernels which
// pass here can be believed. In cuda_emulated_test only.
#include <cstdlib>
#include <functional>
#include <memory>

#include "cuda/test_device.h"
#include "kernels/cuda/emulation/emulated_device.h"
#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

void nothing() { begin_kernel(); }

class Emulation : public CudaTest {
 protected:
  // Runs the body as a kernel whose blocks have some shared memory.
  static void run(dim3 grid, dim3 block, const std::function<void()>& body) {
    body_ = &body;
    launch(LaunchStream{}, {grid, block, 4096}, call);
  }
  static void call() {
    begin_kernel();
    (*body_)();
  }
  inline static const std::function<void()>* body_ = nullptr;  // no argument: it is the host's
  static float element(const TensorView& host, int row, int column) {
    return get(host, row * host.columns() + column);
  }
};

TEST_F(Emulation, NamesEveryThreadOfEveryBlockOnce) {
  const Pair counts = integers(std::vector<int32_t>(3 * 2 * 2 * 64, 0));
  auto* at = counts.gpu.as<int32_t>();
  run({3, 2, 2}, {32, 2}, [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    at[(block * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] += 1;
  });
  EXPECT_EQ(gpu_values(counts.gpu), std::vector<float>(3 * 2 * 2 * 64, 1.0f));
}

TEST_F(Emulation, ATensorCoreMultipliesMatrices) {
  const Pair a = random(DType::kBF16, {16, 16});
  const Pair b = random(DType::kBF16, {16, 8});
  const Pair d = random(DType::kF32, {16, 8});
  const auto* a_data = a.gpu.as<Bf16>();
  const auto* b_data = b.gpu.as<Bf16>();
  auto* d_data = d.gpu.as<float>();
  run(1, 32, [&] {
    const int g = lane_id() / 4;
    const int t = lane_id() % 4;
    const auto pair = [](Bf16 low, Bf16 high) { return low.bits | uint32_t{high.bits} << 16; };
    const auto of_a = [&](int row, int column) {
      return pair(a_data[row * 16 + column], a_data[row * 16 + column + 1]);
    };
    const auto of_b = [&](int row) { return pair(b_data[row * 8 + g], b_data[(row + 1) * 8 + g]); };
    const uint32_t left[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8),
                              of_a(g + 8, 2 * t + 8)};
    const uint32_t right[2] = {of_b(2 * t), of_b(2 * t + 8)};
    float sums[4];
    for (int e = 0; e < 4; ++e) sums[e] = d_data[(g + e / 2 * 8) * 8 + 2 * t + e % 2];
    mma_bf16(sums, left, right);
    for (int e = 0; e < 4; ++e) d_data[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = sums[e];
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = element(d.host, row, column);
      for (int k = 0; k < 16; ++k) sum += element(a.host, row, k) * element(b.host, k, column);
      set(d.host, row * 8 + column, sum);
    }
  }
  expect_near(d, 1e-5);
}

// Matrices of the numbers 64 m + 8 row + column.
TEST_F(Emulation, LoadsMatricesAndTheirTransposes) {
  for (const bool transposed : {false, true}) {
    const Pair loaded = integers(std::vector<int32_t>(4 * 32, 0));
    auto* at = loaded.gpu.as<int32_t>();
    run(1, 32, [&] {
      auto* numbers = reinterpret_cast<uint16_t*>(dynamic_shared());
      for (int i = lane_id(); i < 256; i += kWarp) numbers[i] = static_cast<uint16_t>(i);
      __syncthreads();
      uint32_t r[4];
      const auto load = transposed ? load_matrices_x4_transposed : load_matrices_x4;
      load(r, numbers + lane_id() * 8);
      for (int j = 0; j < 4; ++j) at[j * 32 + lane_id()] = static_cast<int32_t>(r[j]);
    });
    const std::vector<float> got = gpu_values(loaded.gpu);
    for (int j = 0; j < 4; ++j) {
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4;
        const int t = lane % 4;
        const int low = 64 * j + (transposed ? 16 * t + g : 8 * g + 2 * t);
        const int high = low + (transposed ? 8 : 1);
        EXPECT_EQ(got[static_cast<size_t>(j * 32 + lane)], static_cast<float>(low + (high << 16)));
      }
    }
  }
}

TEST_F(Emulation, ACopyIsThereOnceItsGroupIsWaitedFor) {
  const Pair from = integers({1, 2, 3, 4, 5, 6, 7, 8});
  const Pair seen = integers(std::vector<int32_t>(8, 0));
  const auto* source = from.gpu.as<int32_t>();
  auto* at = seen.gpu.as<int32_t>();
  run(1, 32, [&] {
    if (threadIdx.x != 0) return;
    auto* shared = reinterpret_cast<int32_t*>(dynamic_shared());
    copy_async_16(shared, source, true);
    copy_async_commit();
    copy_async_16(shared + 4, source + 4, true);
    copy_async_16(shared + 8, source, false);
    copy_async_commit();
    at[0] = shared[0];  // memory as it was: every byte 0xff
    copy_async_wait<1>();
    at[1] = shared[3];
    at[2] = shared[4];
    copy_async_wait<0>();
    at[3] = shared[7];
    at[4] = shared[8];
  });
  EXPECT_EQ(gpu_values(seen.gpu), (std::vector<float>{-1, 4, -1, 8, 0, 0, 0, 0}));
}

TEST_F(Emulation, SumsOverWarpsAndBlocks) {
  constexpr int kThreads = 96;
  const Pair results = filled(DType::kF32, {4, kThreads});
  auto* at = results.gpu.as<float>();
  run(1, kThreads, [&] {
    auto* shared = reinterpret_cast<float*>(dynamic_shared());
    const int i = static_cast<int>(threadIdx.x);
    const auto value = static_cast<float>(i);
    at[i] = warp_sum(value);
    at[kThreads + i] = warp_max(-value);
    at[2 * kThreads + i] = block_sum(value, shared);
    at[3 * kThreads + i] = block_max(value, shared);
  });
  const std::vector<float> got = gpu_values(results.gpu);
  for (size_t i = 0; i < kThreads; ++i) {
    const auto first = static_cast<float>(i / 32 * 32);
    EXPECT_EQ(got[i], 32 * first + 31 * 16);
    EXPECT_EQ(got[kThreads + i], -first);
    EXPECT_EQ(got[2 * kThreads + i], 95 * 48);
    EXPECT_EQ(got[3 * kThreads + i], 95);
  }
}

TEST_F(Emulation, ShufflesStayInTheirWidth) {
  const Pair results = integers(std::vector<int32_t>(4 * 32, 0));
  auto* at = results.gpu.as<int32_t>();
  run(1, 32, [&] {
    const int lane = lane_id();
    at[lane] = __shfl_sync(kAllLanes, lane, 3, 8);
    at[32 + lane] = __shfl_xor_sync(kAllLanes, lane, 5);
    at[64 + lane] = __shfl_down_sync(kAllLanes, lane, 3, 8);
    at[96 + lane] = __shfl_up_sync(kAllLanes, lane, 3, 8);
  });
  const std::vector<float> got = gpu_values(results.gpu);
  for (int lane = 0; lane < 32; ++lane) {
    const auto i = static_cast<size_t>(lane);
    EXPECT_EQ(got[i], static_cast<float>(lane / 8 * 8 + 3));
    EXPECT_EQ(got[32 + i], static_cast<float>(lane ^ 5));
    EXPECT_EQ(got[64 + i], static_cast<float>(lane % 8 < 5 ? lane + 3 : lane));
    EXPECT_EQ(got[96 + i], static_cast<float>(lane % 8 >= 3 ? lane - 3 : lane));
  }
}

TEST_F(Emulation, EndsKernelsThatAGpuWouldNotFinish) {
  EXPECT_DEATH(run(1, 32,
                   [] {
                     if (lane_id() < 16) return;
                     __syncwarp();
                     warp_sum(1.0f);
                   }),
               "a warp function without lane");
  EXPECT_DEATH(run(1, 32,
                   [] {
                     alignas(16) int32_t from[5] = {};
                     copy_async_16(dynamic_shared(), from + 1, true);
                   }),
               "not aligned");
  EXPECT_DEATH(run(1, 64,
                   [] {
                     if (warp_id() == 0) __syncthreads();
                     if (warp_id() == 1) {
                       if (lane_id() > 0) __syncthreads();
                       if (lane_id() == 0) __syncwarp();
                     }
                   }),
               "waits for ever");
  const Pair on_gpu = integers({1});
  EXPECT_DEATH(*on_gpu.gpu.as<int32_t>() = 2, "");
}

void never_begins(int32_t* at) {
  if (lane_id() > 0) begin_kernel();
  if (lane_id() > 0) *at = 2;
}
void begins_late(int32_t* at) {
  *at = 2;
  begin_kernel();
}

TEST_F(Emulation, EndsKernelsThatDoNotWaitForTheOneBefore) {
  const Pair on_gpu = integers({1});
  auto* at = on_gpu.gpu.as<int32_t>();
  EXPECT_DEATH(launch(LaunchStream{}, {1, 32}, never_begins, at), "without begin_kernel");
  EXPECT_DEATH(launch(LaunchStream{}, {1, 32}, begins_late, at), "");
}

void add_one(int32_t* at) {
  begin_kernel();
  if (lane_id() == 0) *at += 1;
}
void add_one_there(int32_t* const* at) {
  begin_kernel();
  if (lane_id() == 0) **at += 1;
}

// A second GPU, with a number in its memory.
class TwoEmulatedGpus : public Emulation {
 protected:
  void SetUp() override {
    Emulation::SetUp();
    other_ = make_emulated_device(1);
    stream_ = *other_->make_stream();
    arena_ = std::make_unique<Arena>(*other_, "other");
    number_ = *arena_->make(DType::kI32, {1});
    at_ = number_.view().as<int32_t>();
    stream_->fill_zero(at_, sizeof *at_);
  }
  static LaunchStream launches(Stream& stream) {
    return {.handle = static_cast<CudaStream&>(stream).handle()};
  }
  int32_t value() {
    int32_t host = -1;
    stream_->copy(&host, at_, sizeof host, CopyKind::kDeviceToHost);
    stream_->synchronize();
    return host;
  }

  std::unique_ptr<Device> other_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  Tensor number_;
  int32_t* at_ = nullptr;
};

TEST_F(TwoEmulatedGpus, HaveMemoryThatTheOtherMayNotTouch) {
  EXPECT_EQ(other_->name(), "emulated1");
  launch(launches(*stream_), {1, 32}, add_one, at_);
  EXPECT_EQ(value(), 1);
  const Pair own = integers({1});
  EXPECT_DEATH(gpu_stream_->copy(own.gpu.data, at_, 4, CopyKind::kDeviceToDevice),
               "a stream of GPU 0 copies memory of another");
  EXPECT_DEATH(stream_->copy(at_, own.gpu.data, 4, CopyKind::kDeviceToDevice),
               "a stream of GPU 1 copies memory of another");
  EXPECT_DEATH(gpu_stream_->fill_zero(at_, 4), "fills memory of another");
  EXPECT_DEATH(launch(launches(*gpu_stream_), {1, 32}, add_one, at_),
               "of GPU 0 is an address of another's memory");
  // An address in a table, which nothing looks at before the kernel does.
  const auto* const table = static_cast<CudaStream&>(*gpu_stream_).upload(&at_, sizeof at_);
  gpu_stream_->synchronize();
  EXPECT_DEATH(
      launch(launches(*gpu_stream_), {1, 32}, add_one_there, static_cast<int32_t* const*>(table)),
      "");
}

TEST_F(TwoEmulatedGpus, WaitForEventsOfOneAnother) {
  const bool late = set_streams_late(true);
  {
    const auto first = *gpu_->make_stream();
    const auto second = *other_->make_stream();
    for (int32_t round = 1; round <= 20; ++round) {
      const Pair from = integers({round});
      int32_t between = 0;
      first->copy(&between, from.gpu.data, 4, CopyKind::kDeviceToHost);
      second->wait(first->record());
      second->copy(at_, &between, 4, CopyKind::kHostToDevice);
      second->synchronize();
      EXPECT_EQ(value(), round);
    }
  }
  set_streams_late(late);
}

// What is chosen for a stream is chosen behind its handle, of the GPU that the thread has then.
TEST_F(TwoEmulatedGpus, HaveSharedMemoryOfTheirOwn) {
  setenv("JIGE_EMULATED_SHARED_KIB", "227,99", 1);
  for (int turn = 0; turn < 2; ++turn) {
    launches(*stream_);
    EXPECT_EQ(shared_bytes_max(), int64_t{99} << 10);
    launches(*gpu_stream_);
    EXPECT_EQ(shared_bytes_max(), int64_t{227} << 10);
  }
  launches(*stream_);
  EXPECT_DEATH(launch(launches(*stream_), {1, 32, int64_t{128} << 10}, nothing), "shared memory");
  unsetenv("JIGE_EMULATED_SHARED_KIB");
}

}  // namespace
}  // namespace jige::cuda
