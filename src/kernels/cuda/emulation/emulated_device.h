// GPUs without one: devices whose kernels are emulated (emulated.h) and whose memory neither the
// host nor one another can touch (device_memory.h). For tests. Streams run their work at once, or
// late, as a GPU's do (late_queue.h).
//
// Threads: as tensor/device.h says.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace jige::cuda {

// Emulated GPU `index`, whose memory no other may touch.
std::unique_ptr<Device> make_emulated_device(int index);

// Whether streams that are made from now on run their work late; whether they did before. In the
// beginning they do where JIGE_EMULATED_LATE is set.
bool set_emulated_streams_late(bool late);

}  // namespace jige::cuda
