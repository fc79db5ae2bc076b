// In place of the kernel where the build found no nvcc.
#include "profile/copy_kernel.h"

namespace jige::profile {

std::span<const unsigned char> copy_kernel_image() { return {}; }

}  // namespace jige::profile
