// cuda_gpu_test runs on the first GPU of the machine.
#include "cuda/test_device.h"

namespace jige {

bool test_device_is_emulated() { return false; }

}  // namespace jige
