#include "model/adapter_tensors.h"

#include <string_view>
#include <utility>

#include "formats/image_model_names.h"
#include "formats/lora_patterns.h"

namespace jige::model {

namespace {

// Where a part of a pair is kept.
TensorView& place_of(AdapterPair& pair, formats::LoraPart part) {
  switch (part) {
    case formats::LoraPart::kA:
      return pair.a;
    case formats::LoraPart::kB:
      return pair.b;
    case formats::LoraPart::kMagnitude:
      return pair.magnitude;
    default:
      return pair.bias_of_b;
  }
}

// Biases of adapted modules belong to these.
void move_biases(AdapterTensors& tensors) {
  constexpr std::string_view kBias = ".bias";
  for (auto saved = tensors.saved.begin(); saved != tensors.saved.end();) {
    const std::string_view name = saved->first;
    const auto pair = name.ends_with(kBias)
                          ? tensors.pairs.find(name.substr(0, name.size() - kBias.size()))
                          : tensors.pairs.end();
    if (pair == tensors.pairs.end()) {
      ++saved;
      continue;
    }
    pair->second.bias = saved->second;
    saved = tensors.saved.erase(saved);
  }
}

}  // namespace

Result<AdapterTensors> read_adapter_tensors(const formats::TensorFolder& files,
                                            const formats::LoraConfig& config) {
  JIGE_TRY(const auto patterns, formats::LoraPatterns::create(config, files.folder()));
  AdapterTensors tensors;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    const bool is_float = tensor->dtype == DType::kF32 || tensor->dtype == DType::kBF16 ||
                          tensor->dtype == DType::kF16;
    if (!is_float) {
      return fail(Code::kUnsupported,
                  "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16", files.folder(),
                  tensor->name, tensor->dtype_name);
    }
    JIGE_TRY(const auto name, formats::parse_lora_tensor_name(tensor->name, files.folder()));
    if (formats::reads_images(name.module)) continue;
    JIGE_TRY(const TensorView view, files.view(tensor->name));
    const std::string module = formats::name_without_images(name.module);
    if (name.part == formats::LoraPart::kSaved) {
      tensors.saved[module] = view;
      continue;
    }
    AdapterPair& pair = tensors.pairs[module];
    if (pair.rank == 0) {  // patterns are about the name that the adapter's class has
      JIGE_TRY(const formats::LoraModule numbers, patterns.of(name.module));
      pair.rank = numbers.rank;
      pair.scale = static_cast<float>(numbers.scale);
    }
    place_of(pair, name.part) = view;
  }
  move_biases(tensors);
  return tensors;
}

AdapterPairs::const_iterator find_adapter_pair(const AdapterPairs& pairs, const std::string& module,
                                               formats::Family family) {
  constexpr std::string_view kGpt2 = "transformer.";
  constexpr std::string_view kNemotronH = "backbone.";
  constexpr std::string_view kHeadGates = ".self_attn.gate_proj";  // of LFM3
  const auto found = pairs.find(module);
  if (found != pairs.end()) return found;
  if (module.ends_with(kHeadGates)) {
    const std::string layer = module.substr(0, module.size() - kHeadGates.size());
    return pairs.find(layer + ".self_attn.g_proj");
  }
  if (module.starts_with(kNemotronH)) {
    return pairs.find("model." + module.substr(kNemotronH.size()));
  }
  if (family == formats::Family::kExaone) {
    return pairs.find(formats::exaone_module_in_memory(module));
  }
  if (module.starts_with(kGpt2)) return pairs.find(module.substr(kGpt2.size()));
  return pairs.find(std::string(kGpt2) + module);
}

Status check_adapter_pair(const std::string& folder, const std::string& module,
                          const AdapterPair& pair, const AdaptedMatrix& matrix,
                          const formats::LoraConfig& config) {
  if (!pair.a.data || !pair.b.data) {
    return fail(Code::kCorrupt, "{}: module \"{}\" has only one of lora_A and lora_B", folder,
                module);
  }
  const Shape a{pair.rank, matrix.inputs};
  const Shape b{matrix.outputs, pair.rank};
  if (pair.a.shape != a || pair.b.shape != b) {
    return fail(
        Code::kCorrupt,
        "{}: module \"{}\" has lora_A {} and lora_B {}, but rank {} on a base of {} outputs "
        "and {} inputs needs {} and {}{}",
        folder, module, pair.a.shape.to_string(), pair.b.shape.to_string(), pair.rank,
        matrix.outputs, matrix.inputs, a.to_string(), b.to_string(),
        config.base_model.empty() ? "" : "; it was made for " + config.base_model);
  }
  if (config.use_dora != bool{pair.magnitude}) {
    return fail(Code::kCorrupt,
                "{}: module \"{}\" has {} lora_magnitude_vector, but use_dora is {}", folder,
                module, pair.magnitude ? "a" : "no", config.use_dora);
  }
  const std::pair<const char*, const TensorView*> vectors[] = {
      {"lora_magnitude_vector", &pair.magnitude},
      {"lora_B.bias", &pair.bias_of_b},
      {"bias", &pair.bias}};
  for (const auto& [name, vector] : vectors) {
    if (!*vector || vector->shape == Shape{matrix.outputs}) continue;
    return fail(Code::kCorrupt, "{}: module \"{}\" has {} {}, but its base has {} outputs", folder,
                module, name, vector->shape.to_string(), matrix.outputs);
  }
  return {};
}

}  // namespace jige::model
