// LoRA adapters as PEFT writes and reads them: adapter_config.json and the names of the tensors in
// adapter_model.safetensors.
//
// An adapted matrix W [out, in] acts as W + scale · B A with A [r, in] and B [out, r], where scale
// is alpha / r, or alpha / sqrt(r) with use_rslora. Tensors are named
//   base_model.model.MODULE.lora_A.weight    and    base_model.model.MODULE.lora_B.weight
// with MODULE such as model.layers.0.self_attn.q_proj; rank_pattern and alpha_pattern give single
// modules others of r and alpha (lora_patterns.h). Besides there may be
//   MODULE.lora_magnitude_vector   m [out] of DoRA (Liu et al., 2024): row n of the matrix acts as
//                                  m_n / ‖·‖ times that of W + scale · B A, of which ‖·‖ is the
//                                  norm
//   MODULE.lora_B.bias             [out], which scale is multiplied with, too
//   MODULE.base_layer.bias         or MODULE.bias: in place of the base's
//   MODULE.weight                  in place of the base's (modules_to_save)
// The weights go through tensor_folder.h with the stem "adapter_model".
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

inline constexpr int64_t kLoraRankMax = 65536;

struct LoraConfig {
  int64_t rank = 8;
  double alpha = 8.0;
  double dropout = 0.0;
  bool use_rslora = false;
  bool use_dora = false;
  bool ties_saved = false;  // a saved table is that of a tied head, too (ensure_weight_tying)
  // Of single modules, by regular expressions, in the order of the file.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  // Suffixes of module names ("q_proj"), sorted. Empty: the folder gave a pattern, and the tensors
  // that are there say what is adapted.
  std::vector<std::string> target_modules;
  std::string target_pattern;   // "all-linear" or a regular expression, or empty
  std::string base_model;       // base_model_name_or_path, may be empty
  bool fan_in_fan_out = false;  // the base stores matrices as [in, out] (GPT-2)

  bool operator==(const LoraConfig&) const = default;
  // What B A is multiplied with, where no pattern says otherwise; that of a rank and an alpha.
  double scale() const { return scale(rank, alpha); }
  double scale(int64_t of_rank, double of_alpha) const;
};

// Reads an adapter_config.json. Fails with kUnsupported on other adapter kinds and on LoRA variants
// that change the formula above, kCorrupt or kNotFound on fields that are absent or out of range.
Result<LoraConfig> parse_lora_config(const Json& json, std::string_view where);
Result<LoraConfig> load_lora_config(const std::string& folder);

Json to_peft_config(const LoraConfig& config);

// kSaved: a tensor of the base, "model.norm.weight", in place of which this one stands.
enum class LoraPart { kA, kB, kMagnitude, kBiasOfB, kSaved };

// "base_model.model.MODULE.lora_A.weight". REQUIRES: not kSaved.
std::string lora_tensor_name(std::string_view module, LoraPart part);

struct LoraTensorName {
  std::string module;  // of kSaved the name of the tensor
  LoraPart part = LoraPart::kA;
};

// Takes a tensor name apart. Fails with kUnsupported on names of any other form.
Result<LoraTensorName> parse_lora_tensor_name(std::string_view name, std::string_view where);

// Module suffixes that an adapter for the model may target: every linear layer of a block, but for
// routers and experts.
std::vector<std::string> lora_linear_modules(const ModelConfig& config);
// Targets by all names that they have where PEFT looks for them, sorted: of EXAONE 3 those of its
// files and those that transformers gives its modules in memory.
std::vector<std::string> lora_target_names(Family family, std::vector<std::string> targets);
// The other way, of a module of EXAONE 3: "model.layers.0.self_attn.o_proj" for
// "transformer.h.0.attn.attention.out_proj".
std::string exaone_module_in_memory(std::string_view module);
// Whether the product behind recurrent layers is one of them: PEFT refuses it in some families with
// layers of Mamba 2.
bool adapts_recurrent_output(Family family);

}  // namespace jige::formats
