#include "cuda/test_device.h"
#include "tensor/cuda_device.h"

namespace jige {

Result<std::unique_ptr<Device>> make_test_device() { return make_cuda_device(0); }

bool test_device_is_emulated() { return false; }

}  // namespace jige
