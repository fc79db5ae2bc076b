#include "formats/vector_layer.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"

namespace jige::formats {
namespace {

Result<VectorActivation> parse_vector_activation(const Json& config, std::string_view where) {
  JIGE_TRY(const std::string name,
           get_string_or(config, "activation_function", "torch.nn.modules.activation.Tanh", where));
  const std::string_view kind = std::string_view(name).substr(name.rfind('.') + 1);
  if (kind == "Tanh") return VectorActivation::kTanh;
  if (kind == "Identity") return VectorActivation::kIdentity;
  return fail(Code::kUnsupported,
              "{}: field \"activation_function\" is \"{}\", which Jige does not compute; it "
              "computes Identity and Tanh",
              where, name.substr(0, 80));
}

Result<int64_t> parse_width(const Json& config, const char* field, std::string_view where) {
  JIGE_TRY(const int64_t width, get_int(config, field, where));
  if (width >= 1 && width <= kHiddenMax) return width;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where, field, width,
              kHiddenMax);
}

}  // namespace

float widened(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kBF16:
      return to_float(view.as<BFloat16>()[i]);
    case DType::kF16:
      return to_float(view.as<Float16>()[i]);
    default:
      return view.as<float>()[i];
  }
}

Result<TensorView> find_plain_tensor(const TensorFolder& files, std::string_view name,
                                     const std::vector<int64_t>& dims) {
  const StoredTensor* stored = files.find(name);
  if (!stored) {
    return fail(Code::kNotFound, "{}: tensor \"{}\" is missing; config.json there makes it [{}]",
                files.folder(), name, fmt::join(dims, ", "));
  }
  if (stored->dims != dims) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape [{}], but config.json makes it [{}]",
                files.folder(), name, fmt::join(stored->dims, ", "), fmt::join(dims, ", "));
  }
  const DType dtype = stored->dtype.value_or(DType::kU8);
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) {
    return files.view(name);
  }
  return fail(Code::kUnsupported, "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16",
              files.folder(), name, stored->dtype_name);
}

Result<std::vector<float>> read_vector(const TensorFolder& files, const std::string& name,
                                       int64_t count) {
  std::vector<float> numbers;
  if (name.empty()) return numbers;
  JIGE_TRY(const TensorView stored, find_plain_tensor(files, name, {count}));
  for (int64_t i = 0; i < count; ++i) numbers.push_back(widened(stored, i));
  return numbers;
}

Result<VectorLayer> read_vector_layer(const TensorFolder& files, const VectorLayerSource& source) {
  VectorLayer layer{
      .inputs = source.inputs, .outputs = source.outputs, .activation = source.activation};
  JIGE_TRY(const TensorView weight,
           find_plain_tensor(files, source.weight, {layer.outputs, layer.inputs}));
  layer.weight.resize(static_cast<size_t>(layer.inputs * layer.outputs));
  for (int64_t row = 0; row < layer.outputs; ++row) {
    for (int64_t column = 0; column < layer.inputs; ++column) {
      layer.weight[static_cast<size_t>(column * layer.outputs + row)] =
          widened(weight, row * layer.inputs + column);
    }
  }
  JIGE_TRY(layer.bias, read_vector(files, source.bias, layer.outputs));
  JIGE_TRY(layer.norm.weight, read_vector(files, source.norm, layer.outputs));
  JIGE_TRY(layer.norm.bias, read_vector(files, source.norm_bias, layer.outputs));
  layer.norm.eps = source.norm_eps;
  return layer;
}

Result<VectorLayer> load_vector_layer(const std::string& folder) {
  const std::string path = folder + "/config.json";
  JIGE_TRY(const Json config, load_json_object(path));
  VectorLayerSource source{.weight = "linear.weight"};
  JIGE_TRY(source.inputs, parse_width(config, "in_features", path));
  JIGE_TRY(source.outputs, parse_width(config, "out_features", path));
  JIGE_TRY(const bool bias, get_bool_or(config, "bias", true, path));
  if (bias) source.bias = "linear.bias";
  JIGE_TRY(source.activation, parse_vector_activation(config, path));
  JIGE_TRY(const TensorFolder files, TensorFolder::open(folder));
  return read_vector_layer(files, source);
}

}  // namespace jige::formats
