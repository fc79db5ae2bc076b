// VectorLayer: a product that a folder puts behind the pooling, as sentence-transformers' module
// Dense does: y = f(W x + b), x the vector so far. Of a head for pairs of texts a layer norm may
// follow.
//
//   PATH/config.json         "in_features", "out_features", "bias", "activation_function": the name
//                            of a class of torch, Identity or Tanh; Tanh where it is left out
//   PATH/model.safetensors   or pytorch_model.bin: "linear.weight" [outputs, inputs] and, with a
//                            bias, "linear.bias"
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tensor_folder.h"
#include "tensor/view.h"

namespace jige::formats {

enum class VectorActivation { kIdentity, kTanh, kGelu, kRelu };  // gelu in the exact form

// y becomes (y - mean) / sqrt(variance + eps) · weight + bias.
struct VectorNorm {
  std::vector<float> weight;  // [outputs]; empty: there is no norm
  std::vector<float> bias;    // [outputs], or empty
  double eps = 0;
};

struct VectorLayer {
  int64_t inputs = 0;
  int64_t outputs = 0;
  std::vector<float> weight;                                  // [inputs, outputs], turned
  std::vector<float> bias;                                    // [outputs], or empty
  VectorActivation activation = VectorActivation::kIdentity;  // f
  VectorNorm norm = {};
};

// A tensor of this shape and of f32, bf16 or f16. Fails with kNotFound, kCorrupt or kUnsupported,
// naming it.
Result<TensorView> find_plain_tensor(const TensorFolder& files, std::string_view name,
                                     const std::vector<int64_t>& dims);
// Number i of such a tensor.
float widened(const TensorView& view, int64_t i);

// A vector of so many numbers; empty without a name. Fails as find_plain_tensor() does.
Result<std::vector<float>> read_vector(const TensorFolder& files, const std::string& name,
                                       int64_t count);

// What a layer is made of, in a folder of tensors.
struct VectorLayerSource {
  std::string weight;     // names
  std::string bias;       // or empty
  std::string norm;       // of a norm's weight, or empty
  std::string norm_bias;  // or empty
  double norm_eps = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  VectorActivation activation = VectorActivation::kIdentity;
};
// Fails as find_plain_tensor() does.
Result<VectorLayer> read_vector_layer(const TensorFolder& files, const VectorLayerSource& source);

// Reads the files of a module's folder. Fails with kUnsupported on another activation, kCorrupt or
// kNotFound on damage; each names file and field or tensor.
Result<VectorLayer> load_vector_layer(const std::string& folder);

}  // namespace jige::formats
