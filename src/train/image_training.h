// What reads the images of a run, as its options have it.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "formats/image_config.h"
#include "tensor/dtype.h"

namespace jige::train {

struct ImageTraining {
  std::string folder;           // of the model
  formats::ImageConfig config;  // with the ids of its tokens
  DType compute = DType::kF32;
  int64_t context = 0;
  int64_t micro_batch_tokens = 0;
};

}  // namespace jige::train
