#include <cuda_runtime_api.h>

#include "base/check.h"

namespace jige::cuda {

void check_launch(int status, const char* what);

void check_launch(int status, const char* what) {
  JIGE_CHECK(status == cudaSuccess, "CUDA: {}: {}", what,
             cudaGetErrorString(static_cast<cudaError_t>(status)));
}

}  // namespace jige::cuda
