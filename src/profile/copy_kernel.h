// The kernel that moves data between GPUs and host memory (cuda/copy_kernel.cu), as an image that
// the CUDA driver loads: code for several architectures, and PTX for later ones.
//
//   if (copy_kernel_image().empty()) …   // the build found no nvcc
//
// Its function is called kCopyKernelName and takes destination, source and the number of 16-byte
// words; both addresses are multiples of 16. Threads: constants.
#pragma once

#include <cstdint>
#include <span>

namespace jige::profile {

inline constexpr const char* kCopyKernelName = "jige_copy";
inline constexpr unsigned kCopyKernelThreads = 512;  // of a block
inline constexpr int64_t kCopyKernelWord = 16;       // bytes

std::span<const unsigned char> copy_kernel_image();

}  // namespace jige::profile
