#include "profile/cuda_driver.h"

#include <dlfcn.h>

namespace jige::profile {
namespace {

constexpr CuResult kCuOutOfMemory = 2;

template <typename Function>
Status find(void* library, const std::string& path, Function*& target, const char* name) {
  target = reinterpret_cast<Function*>(dlsym(library, name));
  if (target) return {};
  return fail(Code::kUnsupported, "CUDA: {} has no {}; is the driver too old?", path, name);
}

}  // namespace

Result<CudaDriver> CudaDriver::load(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char* why = dlerror();
    return fail(Code::kNotFound, "CUDA: {}", why ? why : library);
  }
  CudaDriver driver;
  JIGE_DO(driver.bind(opened, library));
  JIGE_DO(driver.check(driver.f_.init(0), "cuInit"));
  return driver;
}

Status CudaDriver::check(CuResult result, std::string_view what) const {
  if (result == kCuSuccess) return {};
  const char* name = nullptr;
  if (f_.error_name(result, &name) != kCuSuccess || !name) name = "error";
  const Code code = result == kCuOutOfMemory ? Code::kExhausted : Code::kUnavailable;
  return fail(code, "CUDA: {} failed: {} ({})", what, name, result);
}

Status CudaDriver::bind(void* library, const std::string& path) {
  JIGE_DO(find(library, path, f_.init, "cuInit"));
  JIGE_DO(find(library, path, f_.error_name, "cuGetErrorName"));
  JIGE_DO(find(library, path, f_.driver_version, "cuDriverGetVersion"));
  JIGE_DO(find(library, path, f_.device_count, "cuDeviceGetCount"));
  JIGE_DO(find(library, path, f_.device, "cuDeviceGet"));
  JIGE_DO(find(library, path, f_.device_address, "cuDeviceGetPCIBusId"));
  JIGE_DO(find(library, path, f_.can_access_peer, "cuDeviceCanAccessPeer"));
  JIGE_DO(find(library, path, f_.context_retain, "cuDevicePrimaryCtxRetain"));
  JIGE_DO(find(library, path, f_.context_release, "cuDevicePrimaryCtxRelease_v2"));
  JIGE_DO(find(library, path, f_.context_set, "cuCtxSetCurrent"));
  JIGE_DO(find(library, path, f_.peer_enable, "cuCtxEnablePeerAccess"));
  JIGE_DO(find(library, path, f_.memory_allocate, "cuMemAlloc_v2"));
  JIGE_DO(find(library, path, f_.memory_free, "cuMemFree_v2"));
  JIGE_DO(find(library, path, f_.host_allocate, "cuMemHostAlloc"));
  JIGE_DO(find(library, path, f_.host_free, "cuMemFreeHost"));
  JIGE_DO(find(library, path, f_.to_device, "cuMemcpyHtoD_v2"));
  JIGE_DO(find(library, path, f_.to_host, "cuMemcpyDtoH_v2"));
  JIGE_DO(find(library, path, f_.to_device_async, "cuMemcpyHtoDAsync_v2"));
  JIGE_DO(find(library, path, f_.to_host_async, "cuMemcpyDtoHAsync_v2"));
  JIGE_DO(find(library, path, f_.peer_async, "cuMemcpyPeerAsync"));
  JIGE_DO(find(library, path, f_.stream_create, "cuStreamCreate"));
  JIGE_DO(find(library, path, f_.stream_destroy, "cuStreamDestroy_v2"));
  JIGE_DO(find(library, path, f_.stream_wait, "cuStreamWaitEvent"));
  JIGE_DO(find(library, path, f_.event_create, "cuEventCreate"));
  JIGE_DO(find(library, path, f_.event_destroy, "cuEventDestroy_v2"));
  JIGE_DO(find(library, path, f_.event_record, "cuEventRecord"));
  JIGE_DO(find(library, path, f_.event_query, "cuEventQuery"));
  JIGE_DO(find(library, path, f_.module_load, "cuModuleLoadData"));
  JIGE_DO(find(library, path, f_.module_unload, "cuModuleUnload"));
  JIGE_DO(find(library, path, f_.module_function, "cuModuleGetFunction"));
  return find(library, path, f_.launch, "cuLaunchKernel");
}

}  // namespace jige::profile
