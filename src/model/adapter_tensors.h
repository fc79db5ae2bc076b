// The tensors of a LoRA adapter's folder, module by module.
//
// Threads: pure functions; views stay valid for as long as the TensorFolder.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "formats/lora_config.h"
#include "formats/tensor_folder.h"
#include "tensor/view.h"

namespace jige::model {

inline constexpr const char* kAdapterStem = "adapter_model";

// The tensors of an adapted module and what its configuration says of it; vectors may be absent.
struct AdapterPair {
  TensorView a;          // [r, in]
  TensorView b;          // [out, r]
  TensorView magnitude;  // [out], of DoRA
  TensorView bias_of_b;  // [out], added to its product
  TensorView bias;       // [out], in place of the base's
  int64_t rank = 0;      // r that the configuration gives it
  float scale = 1;       // of B A
};
// By module, such as "model.layers.0.self_attn.q_proj".
using AdapterPairs = std::map<std::string, AdapterPair, std::less<>>;

struct AdapterTensors {
  AdapterPairs pairs;
  // By their names in the base, "lm_head.weight", in place of which they stand.
  std::map<std::string, TensorView, std::less<>> saved;
};

// Of an adapter of a model with images what adapts its language model; the rest is passed over, as
// the weights are. Fails with kUnsupported on tensors that are none of LoRA or not stored as
// floats, and as formats::LoraPatterns does.
Result<AdapterTensors> read_adapter_tensors(const formats::TensorFolder& files,
                                            const formats::LoraConfig& config);

// That of a module by its name in the base's files, or by another that it has in adapters: GPT-2's
// with and without "transformer.", and as transformers 5 has it in memory: Nemotron-H's with
// "model." for "backbone.", EXAONE 3's by Llama's names. The end where there is none.
AdapterPairs::const_iterator find_adapter_pair(const AdapterPairs& pairs, const std::string& module,
                                               formats::Family family);

// The matrix that a pair adapts.
struct AdaptedMatrix {
  int64_t outputs = 0;
  int64_t inputs = 0;
};
// Whether a pair is complete and fits a matrix under a configuration, its vectors too. Fails with
// kCorrupt, naming the folder, the module, what is there and what is needed.
Status check_adapter_pair(const std::string& folder, const std::string& module,
                          const AdapterPair& pair, const AdaptedMatrix& matrix,
                          const formats::LoraConfig& config);

}  // namespace jige::model
