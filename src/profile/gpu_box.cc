#include "profile/gpu_box.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/ascii.h"
#include "base/log.h"

namespace jige::profile {
namespace {

constexpr int kGpusMax = 64;
constexpr size_t kNumaNodesMax = 4096;

// Memory that this thread touches comes from one node while this lives.
class NodePolicy {
 public:
  explicit NodePolicy(int32_t numa) {
    if (numa < 0 || static_cast<size_t>(numa) >= kNumaNodesMax) return;
    unsigned long mask[kNumaNodesMax / (8 * sizeof(unsigned long))] = {};
    constexpr size_t kBits = 8 * sizeof(unsigned long);
    const auto node = static_cast<size_t>(numa);
    mask[node / kBits] = 1ul << node % kBits;
    set_ = syscall(SYS_set_mempolicy, MPOL_BIND, mask, kNumaNodesMax) == 0;
    if (!set_) {
      log_warn("host memory may lie on another NUMA node than {}: {}", numa, std::strerror(errno));
    }
  }
  ~NodePolicy() {
    if (set_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
  }
  NodePolicy(const NodePolicy&) = delete;
  NodePolicy& operator=(const NodePolicy&) = delete;

 private:
  bool set_ = false;
};

}  // namespace

Result<std::unique_ptr<GpuBox>> GpuBox::open(const GpuBoxOptions& options) {
  std::unique_ptr<GpuBox> box(new GpuBox(options));
  JIGE_TRY(box->driver_, CudaDriver::load(options.library));
  int count = 0;
  JIGE_DO(box->check(box->f().device_count(&count), "cuDeviceGetCount"));
  if (count < 1) return fail(Code::kNotFound, "CUDA: the driver shows no GPU");
  for (int i = 0; i < std::min(count, kGpusMax); ++i) JIGE_DO(box->add(i));
  return box;
}

Status GpuBox::add(int ordinal) {
  Gpu& gpu = gpus_.emplace_back();
  char address[32] = {};
  JIGE_DO(check(f().device(&gpu.device, ordinal), "cuDeviceGet"));
  JIGE_DO(check(f().device_address(address, sizeof address, gpu.device), "cuDeviceGetPCIBusId"));
  gpu.address = lower_ascii(std::string_view(address, strnlen(address, sizeof address)));
  JIGE_DO(check(f().context_retain(&gpu.context, gpu.device), "cuDevicePrimaryCtxRetain"));
  JIGE_DO(enter(gpus_.size() - 1));
  const auto bytes = static_cast<size_t>(options_.buffer_bytes);
  JIGE_DO(check(f().memory_allocate(&gpu.source, bytes), "cuMemAlloc"));
  return check(f().memory_allocate(&gpu.sink, bytes), "cuMemAlloc");
}

GpuBox::~GpuBox() {
  if (abandoned_) return;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu& gpu = gpus_[i];
    if (!gpu.context) continue;
    if (f().context_set(gpu.context) == kCuSuccess) {
      if (gpu.module) f().module_unload(gpu.module);
      if (gpu.source) f().memory_free(gpu.source);
      if (gpu.sink) f().memory_free(gpu.sink);
      for (void* memory : host_) f().host_free(memory);
      host_.clear();
    }
    f().context_set(nullptr);
    f().context_release(gpu.device);
  }
}

std::string GpuBox::version() const {
  int version = 0;
  if (f().driver_version(&version) != kCuSuccess) return "unknown";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Status GpuBox::enter(size_t gpu) const {
  return check(f().context_set(gpus_[gpu].context), "cuCtxSetCurrent");
}

Result<bool> GpuBox::can_connect(size_t from, size_t to) const {
  int can = 0;
  JIGE_DO(check(f().can_access_peer(&can, gpus_[from].device, gpus_[to].device),
                "cuDeviceCanAccessPeer"));
  return can != 0;
}

Status GpuBox::connect(size_t from, size_t to) {
  if (connected_.contains({from, to})) return {};
  JIGE_TRY(const bool can, can_connect(from, to));
  if (!can) {
    return fail(Code::kUnsupported,
                "the driver gives the GPU at {} no access to the one at {}; go through a memory",
                gpus_[from].address, gpus_[to].address);
  }
  JIGE_DO(enter(from));
  const CuResult enabled = f().peer_enable(gpus_[to].context, 0);
  if (enabled != kCuPeerAlreadyEnabled) JIGE_DO(check(enabled, "cuCtxEnablePeerAccess"));
  connected_.insert({from, to});
  return {};
}

Status GpuBox::load_kernel(size_t index) {
  Gpu& gpu = gpus_[index];
  if (gpu.copy) return {};
  if (options_.kernel_image.empty()) {
    return fail(Code::kUnsupported,
                "transfers by kernels: this build found no nvcc; install it (CUDA toolkit), "
                "configure and build again, or measure copy engines (+copy)");
  }
  JIGE_DO(enter(index));
  if (!gpu.module) {
    JIGE_DO(check(f().module_load(&gpu.module, options_.kernel_image.data()),
                  fmt::format("cuModuleLoadData for the GPU at {}", gpu.address)));
  }
  return check(f().module_function(&gpu.copy, gpu.module, kCopyKernelName), "cuModuleGetFunction");
}

Status GpuBox::copy_by_kernel(size_t gpu, CuPointer to, CuPointer from, int64_t bytes,
                              CuStream stream) {
  unsigned long long words =
      static_cast<unsigned long long>((bytes + kCopyKernelWord - 1) / kCopyKernelWord);
  void* parameters[] = {&to, &from, &words};
  return check(f().launch(gpus_[gpu].copy, static_cast<unsigned>(options_.kernel_blocks), 1, 1,
                          kCopyKernelThreads, 1, 1, 0, stream, parameters, nullptr),
               "cuLaunchKernel");
}

Result<std::byte*> GpuBox::host_memory(size_t bytes, int32_t numa) {
  const NodePolicy policy(numa);
  void* memory = nullptr;
  JIGE_DO(enter(0));
  JIGE_DO(check(f().host_allocate(&memory, bytes, kCuHostPortable), "cuMemHostAlloc"));
  host_.push_back(memory);
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

}  // namespace jige::profile
