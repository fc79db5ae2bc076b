// The device that the tests of the CUDA backend run on, and tensors there and on the host.
//
// cuda_emulated_test has the emulated GPU, cuda_gpu_test the first GPU of the machine, or none: its
// tests skip then. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/rough_normal.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_device.h"
#include "tensor/device.h"

namespace jige {

// Defined by each of the programs: sizes are small where kernels are emulated.
bool test_device_is_emulated();

// Whether streams that are made from now on run their work some time later, as those of a GPU do
// anyway; else, where kernels are emulated, at once. Returns whether they did before.
bool set_streams_late(bool late);

// Whether there are so many GPUs; emulated ones are made.
bool offer_gpus(int count);

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = make_cuda_device(0);
    if (!made) GTEST_SKIP() << made.error().message;
    gpu_ = std::move(*made);
    gpu_arena_ = std::make_unique<Arena>(*gpu_, "gpu");
    gpu_stream_ = *gpu_->make_stream();
    cpu_stream_ = *cpu_.make_stream();
  }

  // A tensor on the host and its copy on the GPU.
  struct Pair {
    TensorView host, gpu;
  };
  // About normal numbers times `deviation`, rounded to the type: f32, bf16 or f16.
  Pair random(DType dtype, Shape shape, float deviation = 1.0f) {
    const Pair pair = made(dtype, shape);
    const int64_t count = shape.count();
    for (int64_t i = 0; i < count; ++i) set(pair.host, i, deviation * rough_normal(random_));
    to_gpu(pair);
    return pair;
  }
  // Every byte 0xff in both: NaN, or -1 in i32.
  Pair filled(DType dtype, Shape shape) {
    const Pair pair = made(dtype, shape);
    std::memset(pair.host.data, 0xff, static_cast<size_t>(dtype_bytes(dtype, shape.count())));
    to_gpu(pair);
    return pair;
  }
  // Not written yet.
  Pair made(DType dtype, Shape shape) {
    Pair pair;
    tensors_.push_back(std::move(*host_arena_.make(dtype, shape)));
    pair.host = tensors_.back().view();
    tensors_.push_back(std::move(*gpu_arena_->make(dtype, shape)));
    pair.gpu = tensors_.back().view();
    return pair;
  }
  Pair integers(const std::vector<int32_t>& values) {
    const Pair pair = made(DType::kI32, Shape{static_cast<int64_t>(values.size())});
    std::memcpy(pair.host.data, values.data(), values.size() * 4);
    to_gpu(pair);
    return pair;
  }
  // The host's bytes to the GPU.
  void to_gpu(const Pair& pair) {
    gpu_stream_->copy(pair.gpu.data, pair.host.data,
                      dtype_bytes(pair.host.dtype, pair.host.count()), CopyKind::kHostToDevice);
    gpu_stream_->synchronize();
  }
  // Elements of a contiguous tensor on the host, or of one on the GPU.
  static std::vector<float> values(const TensorView& host) {
    std::vector<float> result(static_cast<size_t>(host.count()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = get(host, static_cast<int64_t>(i));
    return result;
  }
  std::vector<float> gpu_values(const TensorView& gpu) {
    std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(gpu.dtype, gpu.count())));
    gpu_stream_->copy(bytes.data(), gpu.data, static_cast<int64_t>(bytes.size()),
                      CopyKind::kDeviceToHost);
    gpu_stream_->synchronize();
    TensorView host = gpu;
    host.data = bytes.data();
    return values(host);
  }
  // |gpu - host| <= tolerance · (1 + |host|) everywhere.
  void expect_near(const Pair& pair, double tolerance, const std::string& what = "") {
    const std::vector<float> expected = values(pair.host);
    const std::vector<float> got = gpu_values(pair.gpu);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double limit = tolerance * (1 + std::abs(double{expected[i]}));
      ASSERT_LE(std::abs(double{got[i]} - double{expected[i]}), limit)
          << what << " element " << i << " of " << pair.host.shape.to_string() << ": " << got[i]
          << ", not " << expected[i];
    }
  }
  // The same bits.
  void expect_equal(const Pair& pair, const std::string& what = "") {
    const std::vector<float> expected = values(pair.host);
    const std::vector<float> got = gpu_values(pair.gpu);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
          << what << " element " << i << " of " << pair.host.shape.to_string() << ": " << got[i]
          << ", not " << expected[i];
    }
  }

  static float get(const TensorView& host, int64_t i) {
    switch (host.dtype) {
      case DType::kBF16:
        return to_float(host.as<BFloat16>()[i]);
      case DType::kF16:
        return to_float(host.as<Float16>()[i]);
      case DType::kI32:
        return static_cast<float>(host.as<int32_t>()[i]);
      default:
        return host.as<float>()[i];
    }
  }
  static void set(const TensorView& host, int64_t i, float value) {
    if (host.dtype == DType::kBF16) {
      host.as<BFloat16>()[i] = to_bfloat16(value);
    } else if (host.dtype == DType::kF16) {
      host.as<Float16>()[i] = to_float16(value);
    } else {
      host.as<float>()[i] = value;
    }
  }

  Rng random_{7};
  CpuDevice cpu_{{.thread_count = 1}};
  Arena host_arena_{cpu_, "host"};
  std::unique_ptr<Device> gpu_;
  std::unique_ptr<Arena> gpu_arena_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<Stream> gpu_stream_, cpu_stream_;
};

}  // namespace jige
