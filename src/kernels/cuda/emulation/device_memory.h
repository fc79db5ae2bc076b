// The memory of the emulated GPU: the host can read and write it during launches and copies only.
// Whoever touches it otherwise, as no program may with a GPU's, ends with a segmentation fault.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace jige::cuda::emulation {

class DeviceMemory {
 public:
  // Lets this process at the memory while one of these exists.
  class Access {
   public:
    Access();
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
  };

  static constexpr int64_t kBytes = int64_t{2} << 30;

  // Whether the 8 bytes of a kernel's argument could be an address of host memory.
  static bool looks_like_host(uint64_t word);

  // Fails with kExhausted. Filled with 0xff.
  static Result<void*> allocate(int64_t bytes);
  static void release(void* data, int64_t bytes);
};

}  // namespace jige::cuda::emulation
