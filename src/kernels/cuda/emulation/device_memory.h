// The memory of emulated GPUs, each with its own: the host can read and write it during launches
// and copies of that GPU only. Whoever touches it otherwise, as no program may with a GPU's, ends
// with a segmentation fault; so does, most of the time, a GPU that touches another's, which copies
// and arguments of kernels are looked at for besides (belongs_to_other).
//
// Threads: any.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace jige::cuda::emulation {

class DeviceMemory {
 public:
  // Lets this process at the memory of a GPU while one of these exists.
  class Access {
   public:
    explicit Access(int gpu);
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    int gpu_;
  };

  static constexpr int kGpusMax = 16;
  // Of each GPU, or as many MiB as JIGE_EMULATED_MIB says: "64" for each, "64,32" one by one, the
  // last for all others too.
  static constexpr int64_t kBytes = int64_t{2} << 30;
  static int64_t size_bytes(int gpu);
  // Of these, what is not allocated.
  static int64_t free_bytes(int gpu);

  // Whether the 8 bytes of a kernel's argument could be an address of host memory.
  static bool looks_like_host(uint64_t word);
  // Whether an address is one of a GPU's memory, and not of this one's.
  static bool belongs_to_other(int gpu, uint64_t address);

  // Fails with kExhausted. Filled with 0xff.
  static Result<void*> allocate(int gpu, int64_t bytes);
  static void release(int gpu, void* data, int64_t bytes);
};

}  // namespace jige::cuda::emulation
