#include "model/adapter_tensors.h"

#include "formats/image_model_names.h"

namespace jige::model {

Result<AdapterPairs> read_adapter_pairs(const formats::TensorFolder& files) {
  AdapterPairs pairs;
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
    AdapterPair& pair = pairs[formats::name_without_images(name.module)];
    (name.part == formats::LoraPart::kA ? pair.a : pair.b) = view;
  }
  return pairs;
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
  const Shape a{config.rank, matrix.inputs};
  const Shape b{matrix.outputs, config.rank};
  if (pair.a.shape == a && pair.b.shape == b) return {};
  return fail(Code::kCorrupt,
              "{}: module \"{}\" has lora_A {} and lora_B {}, but rank {} on a base of {} outputs "
              "and {} inputs needs {} and {}{}",
              folder, module, pair.a.shape.to_string(), pair.b.shape.to_string(), config.rank,
              matrix.outputs, matrix.inputs, a.to_string(), b.to_string(),
              config.base_model.empty() ? "" : "; it was made for " + config.base_model);
}

}  // namespace jige::model
