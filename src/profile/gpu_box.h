// The GPUs of this machine as the CUDA driver gives them: a context and two buffers each, and
// pinned host memory on the NUMA node of one's choice.
//
//   JIGE_TRY(const auto box, GpuBox::open({}));
//   JIGE_DO(box->enter(0));      // this thread speaks to GPU 0 from now on
//   JIGE_DO(box->copy_by_kernel(0, to, from, bytes, stream));
//
// Invariants: gpus() are in the driver's order, with different addresses. After abandon() nothing
// is given back any more: a GPU that does not finish would hold up whoever frees its memory.
// Threads: one opens, and allocates; enter() and the driver's functions from any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "profile/copy_kernel.h"
#include "profile/cuda_driver.h"

namespace jige::profile {

struct GpuBoxOptions {
  std::string library = "libcuda.so.1";
  int64_t buffer_bytes = int64_t{64} << 20;  // whole words of the copy kernel
  std::span<const unsigned char> kernel_image = copy_kernel_image();
  int32_t kernel_blocks = 16;  // of its grid: as many multiprocessors have work
};

struct Gpu {
  CuDevice device = 0;
  CuContext context = nullptr;
  std::string address;        // "0000:17:00.0"
  CuPointer source = 0;       // what transfers read
  CuPointer sink = 0;         // what they write
  CuModule module = nullptr;  // once a kernel was asked for
  CuFunction copy = nullptr;
};

class GpuBox {
 public:
  // Fails as CudaDriver::load does, and with kExhausted where memory is short.
  static Result<std::unique_ptr<GpuBox>> open(const GpuBoxOptions& options);
  ~GpuBox();
  GpuBox(const GpuBox&) = delete;
  GpuBox& operator=(const GpuBox&) = delete;

  const CudaFunctions& f() const { return driver_.f(); }
  Status check(CuResult result, std::string_view what) const { return driver_.check(result, what); }
  const std::vector<Gpu>& gpus() const { return gpus_; }
  int64_t buffer_bytes() const { return options_.buffer_bytes; }
  const GpuBoxOptions& options() const { return options_; }
  // "12.4", the highest CUDA that the driver knows.
  std::string version() const;

  Status enter(size_t gpu) const;
  // Whether the driver lets `from` reach the memory of `to`.
  Result<bool> can_connect(size_t from, size_t to) const;
  // Lets it. Fails with kUnsupported where the driver refuses.
  Status connect(size_t from, size_t to);
  // Pinned memory, for all contexts, until the box goes. Where the kernel does not let us choose
  // the node, a warning says so.
  Result<std::byte*> host_memory(size_t bytes, int32_t numa);

  // Loads the copy kernel for a GPU. Fails with kUnsupported where the build has none.
  Status load_kernel(size_t gpu);
  // Lets it move bytes, rounded up to whole words, in a stream of this GPU.
  // REQUIRES: load_kernel(gpu), enter(gpu).
  Status copy_by_kernel(size_t gpu, CuPointer to, CuPointer from, int64_t bytes, CuStream stream);

  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  explicit GpuBox(const GpuBoxOptions& options) : options_(options) {}
  Status add(int ordinal);

  GpuBoxOptions options_;
  CudaDriver driver_;
  std::vector<Gpu> gpus_;
  std::set<std::pair<size_t, size_t>> connected_;
  std::vector<void*> host_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace jige::profile
