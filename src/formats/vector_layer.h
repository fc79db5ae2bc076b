// VectorLayer: a product that a folder puts behind the pooling, as sentence-transformers' module
// Dense does: y = f(W x + b), x the vector so far.
//
//   PATH/config.json         "in_features", "out_features", "bias", "activation_function": the name
//                            of a class of torch, Identity or Tanh; Tanh where it is left out
//   PATH/model.safetensors   "linear.weight" [outputs, inputs] and, with a bias, "linear.bias"
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::formats {

struct VectorLayer {
  int64_t inputs = 0;
  int64_t outputs = 0;
  std::vector<float> weight;  // [inputs, outputs], turned
  std::vector<float> bias;    // [outputs], or empty
  bool is_tanh = false;       // f; else the number itself
};

// Reads the files of a module's folder. Fails with kUnsupported on another activation, kCorrupt or
// kNotFound on damage; each names file and field or tensor.
Result<VectorLayer> load_vector_layer(const std::string& folder);

}  // namespace jige::formats
