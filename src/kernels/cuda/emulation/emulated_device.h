// A GPU without one: a device whose kernels are emulated (emulated.h) and whose memory the host
// cannot touch (device_memory.h). For tests. Streams run their work at once.
//
// Threads: as tensor/device.h says.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace jige::cuda {

std::unique_ptr<Device> make_emulated_device();

}  // namespace jige::cuda
