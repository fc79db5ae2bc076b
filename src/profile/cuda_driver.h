// CUDA's driver library, loaded when it is asked for: what the meter of GPUs needs of it, and no
// more. Neither building nor running needs CUDA.
//
//   JIGE_TRY(const auto driver, CudaDriver::load());
//   JIGE_DO(driver.check(driver.f().memory_allocate(&pointer, bytes), "cuMemAlloc"));
//
// The types are the documented binary interface of the driver, declared by us.
// Invariants: every function is there; the driver is initialised. The library stays loaded until
// the process ends, for it has threads of its own. Threads: as CUDA says; the object itself is
// immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige::profile {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;  // of device memory
using CuContext = struct CuContextOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuNotReady = 600;
inline constexpr CuResult kCuPeerAlreadyEnabled = 704;
inline constexpr unsigned kCuStreamNonBlocking = 1;
inline constexpr unsigned kCuEventDisableTiming = 2;
inline constexpr unsigned kCuHostPortable = 1;

struct CudaFunctions {
  CuResult (*init)(unsigned flags);
  CuResult (*error_name)(CuResult, const char** name);
  CuResult (*driver_version)(int* version);
  CuResult (*device_count)(int* count);
  CuResult (*device)(CuDevice*, int ordinal);
  CuResult (*device_address)(char* text, int size, CuDevice);
  CuResult (*can_access_peer)(int* can, CuDevice from, CuDevice to);
  CuResult (*context_retain)(CuContext*, CuDevice);
  CuResult (*context_release)(CuDevice);
  CuResult (*context_set)(CuContext);
  CuResult (*peer_enable)(CuContext, unsigned flags);
  CuResult (*memory_allocate)(CuPointer*, size_t bytes);
  CuResult (*memory_free)(CuPointer);
  CuResult (*host_allocate)(void**, size_t bytes, unsigned flags);
  CuResult (*host_free)(void*);
  CuResult (*to_device)(CuPointer, const void*, size_t bytes);
  CuResult (*to_host)(void*, CuPointer, size_t bytes);
  CuResult (*to_device_async)(CuPointer, const void*, size_t bytes, CuStream);
  CuResult (*to_host_async)(void*, CuPointer, size_t bytes, CuStream);
  CuResult (*peer_async)(CuPointer dst, CuContext, CuPointer src, CuContext, size_t bytes,
                         CuStream);
  CuResult (*stream_create)(CuStream*, unsigned flags);
  CuResult (*stream_destroy)(CuStream);
  CuResult (*stream_wait)(CuStream, CuEvent, unsigned flags);
  CuResult (*event_create)(CuEvent*, unsigned flags);
  CuResult (*event_destroy)(CuEvent);
  CuResult (*event_record)(CuEvent, CuStream);
  CuResult (*event_query)(CuEvent);
  CuResult (*module_load)(CuModule*, const void* image);
  CuResult (*module_unload)(CuModule);
  CuResult (*module_function)(CuFunction*, CuModule, const char* name);
  CuResult (*launch)(CuFunction, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                     CuStream, void** parameters, void** extra);
};

class CudaDriver {
 public:
  CudaDriver() = default;  // to be assigned to
  // Fails with kNotFound where there is no such library, kUnsupported where it lacks a function,
  // kUnavailable where it cannot be initialised (no GPU, for one).
  static Result<CudaDriver> load(const std::string& library = "libcuda.so.1");

  const CudaFunctions& f() const { return f_; }
  // kExhausted for no memory, kUnavailable for other failures, with CUDA's name of them.
  Status check(CuResult result, std::string_view what) const;

 private:
  Status bind(void* library, const std::string& path);

  CudaFunctions f_{};
};

}  // namespace jige::profile
