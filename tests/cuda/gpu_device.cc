// cuda_gpu_test runs on the first GPU of the machine; with JIGE_TEST_SMALL=1 in the sizes of the
// emulated one, for tools that make every launch slow.
#include <cstdlib>

#include "cuda/test_device.h"

namespace jige {

bool test_device_is_emulated() { return std::getenv("JIGE_TEST_SMALL") != nullptr; }

bool set_streams_late(bool) { return true; }

bool offer_gpus(int count) {
  const auto gpus = list_cuda_devices();
  return gpus && std::ssize(*gpus) >= count;
}

}  // namespace jige
