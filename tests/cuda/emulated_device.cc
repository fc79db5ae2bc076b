#include "kernels/cuda/emulation/emulated_device.h"

#include "cuda/test_device.h"

namespace jige {

Result<std::unique_ptr<Device>> make_test_device() { return cuda::make_emulated_device(); }

bool test_device_is_emulated() { return true; }

}  // namespace jige
