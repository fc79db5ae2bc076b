// The check of calls of the CUDA runtime that fail only when the context is lost.
#pragma once

#include <cuda_runtime_api.h>

#include "base/check.h"

// Fatal unless the call succeeded.
#define JIGE_CUDA_CHECK(...)                                                                       \
  do {                                                                                             \
    const cudaError_t jige_cuda_status = (__VA_ARGS__);                                            \
    JIGE_CHECK(jige_cuda_status == cudaSuccess, "CUDA: {}", cudaGetErrorString(jige_cuda_status)); \
  } while (false)
