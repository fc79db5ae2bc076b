// cuda_emulated_test runs on the emulated GPU (emulated_gpus.cc).
#include "kernels/cuda/emulation/emulated_device.h"

#include <cstdlib>
#include <string>

#include "cuda/test_device.h"

namespace jige {

bool test_device_is_emulated() { return true; }

bool set_streams_late(bool late) { return cuda::set_emulated_streams_late(late); }

bool offer_gpus(int count) {
  return setenv("JIGE_EMULATED_GPUS", std::to_string(count).c_str(), 1) == 0;
}

}  // namespace jige
