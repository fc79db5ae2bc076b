// Streams of a GPU, behind tensor/cuda_device.h. Threads: as there.
#pragma once

#include <memory>

#include "tensor/cuda_device.h"

namespace jige {

// A new stream of GPU `index`, which is `device`. Fatal where CUDA fails.
std::unique_ptr<Stream> make_cuda_stream(Device& device, int index);

}  // namespace jige
