#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tensor/cpu_device.h"

namespace jige {
namespace {

// A CPU device that refuses to allocate when told to.
class FailingDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const std::string& name() const override { return name_; }
  Result<void*> allocate(int64_t bytes) override {
    if (failing) return fail(Code::kExhausted, "no {} bytes", bytes);
    ++live;
    ++allocated;
    held_bytes += bytes;
    return device_.allocate(bytes);
  }
  void release(void* data, int64_t bytes) override {
    --live;
    held_bytes -= bytes;
    device_.release(data, bytes);
  }
  Result<std::unique_ptr<Stream>> make_stream() override { return device_.make_stream(); }

  std::atomic<bool> failing{false};
  std::atomic<int> live{0}, allocated{0};
  std::atomic<int64_t> held_bytes{0};

 private:
  CpuDevice device_{{.thread_count = 1}};
  std::string name_ = "failing";
};

TEST(Arena, CountsBytesInWholeLines) {
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{}), 64);
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{16}), 64);
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{17}), 128);
  EXPECT_EQ(arena_bytes(DType::kBF16, Shape{3, 32}), 192);
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{0, 5}), 0);
}

TEST(Arena, RefusesShapesBeyondCounting) {
  CpuDevice device({.thread_count = 1});
  Arena arena(device, "any");
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{huge, huge}), kUnlimitedBytes);
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{huge}), kUnlimitedBytes);
  EXPECT_EQ(arena_bytes(DType::kF32, Shape{huge, huge, 0}), 0);
  for (const Shape& shape : {Shape{huge, huge}, Shape{huge}, Shape{4, huge, 4}}) {
    const auto tensor = arena.make(DType::kI64, shape);
    ASSERT_FALSE(tensor.has_value());
    EXPECT_EQ(tensor.error().code, Code::kExhausted);
  }
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(Arena, KeepsUnderItsCap) {
  CpuDevice device({.thread_count = 1});
  Arena arena(device, "cpu0 activations", 1024);
  auto first = arena.make(DType::kF32, Shape{128});  // 512
  ASSERT_TRUE(first.has_value());
  const auto refused = arena.make(DType::kF32, Shape{129});  // 576 with 512 left
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  for (const char* part : {"cpu0 activations", "576 B", "512 B", "1.00 KiB"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  const auto second = arena.make(DType::kF32, Shape{128});
  EXPECT_TRUE(second.has_value());
  EXPECT_EQ(arena.used_bytes(), 1024);
  EXPECT_FALSE(arena.make(DType::kU8, Shape{1}).has_value());
  EXPECT_TRUE(arena.make(DType::kU8, Shape{0}).has_value());
  *first = Tensor();
  EXPECT_EQ(arena.used_bytes(), 512);
  EXPECT_TRUE(arena.make(DType::kF32, Shape{128}).has_value());
}

TEST(Arena, RecordsItsPeak) {
  CpuDevice device({.thread_count = 1});
  Arena arena(device, "a");
  {
    const auto one = arena.make(DType::kF32, Shape{16});
    {
      const auto two = arena.make(DType::kF32, Shape{32});
      EXPECT_EQ(arena.used_bytes(), 192);
    }
    EXPECT_EQ(arena.used_bytes(), 64);
    EXPECT_EQ(arena.peak_bytes(), 192);
    arena.reset_peak();
    EXPECT_EQ(arena.peak_bytes(), 64);
  }
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_EQ(arena.peak_bytes(), 64);
}

TEST(Arena, GivesAlignedMemoryThatMakeZeroClears) {
  for (const bool queued : {false, true}) {
    CpuDevice device({.thread_count = 2, .queued_streams = queued});
    Arena arena(device, "a");
    for (const int64_t count : {1, 100, 65536}) {
      const auto dirty = arena.make(DType::kF32, Shape{count});
      for (int64_t i = 0; i < count; ++i) dirty->view().as<float>()[i] = 1.0f;
      const auto tensor = arena.make_zero(DType::kF32, Shape{count});
      ASSERT_TRUE(tensor.has_value());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->view().data) % 64, 0u);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(tensor->view().as<float>()[i], 0.0f);
    }
  }
}

TEST(Arena, CountsNothingForWhatTheDeviceRefuses) {
  FailingDevice device;
  Arena arena(device, "weights");
  device.failing = true;
  const auto refused = arena.make_zero(DType::kF32, Shape{100});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("weights"), std::string::npos);
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_EQ(arena.peak_bytes(), 0);
  device.failing = false;
  EXPECT_TRUE(arena.make(DType::kF32, Shape{100}).has_value());
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_EQ(arena.peak_bytes(), 448);
  arena.reset_peak();
  EXPECT_EQ(device.live, 0);
}

TEST(Arena, ReportsMemoryTheSystemDoesNotHave) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process on such a request";
#endif
  CpuDevice device({.thread_count = 1});
  Arena arena(device, "a");
  const auto refused = arena.make(DType::kU8, Shape{int64_t{1} << 58});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
}

TEST(Tensor, MovesItsMemory) {
  FailingDevice device;
  Arena arena(device, "a");
  Tensor empty;
  EXPECT_FALSE(static_cast<bool>(empty));
  Tensor first = std::move(*arena.make(DType::kF32, Shape{4}));
  Tensor second = std::move(*arena.make(DType::kF32, Shape{5}));
  void* data = second.view().data;
  first = std::move(second);
  EXPECT_EQ(first.view().data, data);
  EXPECT_EQ(first.view().shape, (Shape{5}));
  Tensor third(std::move(first));
  EXPECT_EQ(third.view().data, data);
  EXPECT_FALSE(static_cast<bool>(first));
  third = Tensor();
  second = Tensor();
  EXPECT_EQ(arena.used_bytes(), 0);
  arena.reset_peak();
  EXPECT_EQ(device.live, 0);
}

// What comes and goes in every step is asked of the device once.
TEST(Arena, GivesMemoryOfTheSameSizeAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer is to see every use of memory that was given back";
#endif
  FailingDevice device;
  {
    Arena arena(device, "steps");
    for (int step = 0; step < 10; ++step) {
      const auto a = arena.make(DType::kF32, Shape{100});
      const auto b = arena.make(DType::kF32, Shape{7, 100});
      ASSERT_TRUE(a && b);
      EXPECT_NE(a->view().data, b->view().data);
    }
    EXPECT_EQ(device.allocated, 2);
    EXPECT_EQ(device.held_bytes, arena.peak_bytes());
    arena.reset_peak();
    EXPECT_EQ(device.held_bytes, 0);
  }
  EXPECT_EQ(device.live, 0);
}

TEST(Arena, NeverTakesMoreFromTheDeviceThanItsPeak) {
  FailingDevice device;
  {
    Arena arena(device, "random", 1 << 16);
    Rng rng(5);
    std::vector<Tensor> live;
    for (int i = 0; i < 5000; ++i) {
      if (live.empty() || rng.below(2) == 0) {
        auto made = arena.make(DType::kF32, Shape{static_cast<int64_t>(1 + rng.below(2000))});
        if (made) live.push_back(std::move(*made));
      } else {
        std::swap(live[rng.below(live.size())], live.back());
        live.pop_back();
      }
      ASSERT_GE(device.held_bytes, arena.used_bytes());
      ASSERT_LE(device.held_bytes, arena.peak_bytes());
    }
  }
  EXPECT_EQ(device.live, 0);
}

TEST(Arena, HoldsItsCapWithManyThreads) {
  CpuDevice device({.thread_count = 1});
  constexpr int64_t kCap = 64 * 100;
  Arena arena(device, "shared", kCap);
  std::atomic<bool> broken{false};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      Rng rng(seed);
      std::vector<Tensor> held;
      for (int round = 0; round < 2000; ++round) {
        if (rng.below(3) == 0 && !held.empty()) {
          std::swap(held[rng.below(held.size())], held.back());
          held.pop_back();
        } else {
          auto made = arena.make(DType::kU8, Shape{static_cast<int64_t>(rng.below(64 * 20))});
          if (made) held.push_back(std::move(*made));
        }
        const int64_t used = arena.used_bytes();
        if (used < 0 || used > kCap || arena.peak_bytes() > kCap) broken = true;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(broken);
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_GT(arena.peak_bytes(), kCap / 2);
}

TEST(ArenaDeathTest, RefusesToGoBeforeItsTensors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CpuDevice device({.thread_count = 1});
  EXPECT_DEATH(
      {
        Tensor left;
        Arena arena(device, "short-lived");
        left = std::move(*arena.make(DType::kF32, Shape{4}));
      },
      "short-lived destroyed with 64 bytes");
}

}  // namespace
}  // namespace jige
