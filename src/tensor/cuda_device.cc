#include "tensor/cuda_device.h"

#include "base/check.h"

namespace jige {

CudaStream& as_cuda(Stream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  JIGE_CHECK(cuda, "a stream of {} where one of a GPU is needed", stream.device().name());
  return *cuda;
}

}  // namespace jige
