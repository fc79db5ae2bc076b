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

// The two matrices of an adapted module.
struct AdapterPair {
  TensorView a;  // [r, in]
  TensorView b;  // [out, r]
};
// By module, such as "model.layers.0.self_attn.q_proj".
using AdapterPairs = std::map<std::string, AdapterPair, std::less<>>;

// Of an adapter of a model with images what adapts its language model; the rest is passed over, as
// the weights are. Fails with kUnsupported on tensors that are no LoRA matrices or not stored as
// floats.
Result<AdapterPairs> read_adapter_pairs(const formats::TensorFolder& files);

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
// Whether a pair is complete and fits a matrix under a configuration. Fails with kCorrupt, naming
// the folder, the module, what is there and what is needed.
Status check_adapter_pair(const std::string& folder, const std::string& module,
                          const AdapterPair& pair, const AdaptedMatrix& matrix,
                          const formats::LoraConfig& config);

}  // namespace jige::model
