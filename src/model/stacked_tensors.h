// Parameters of experts that files hold in tensors of all experts of a layer (StackedPlace), in
// floating point or in MXFP4.
//
// MXFP4: "<tensor>_blocks" [E, N, K/32, 16] u8 and "<tensor>_scales" [E, N, K/32] u8. A byte holds
// two numbers, the first in its low half: sign, two bits of exponent, one of mantissa, that is ±{0,
// ½, 1, 1½, 2, 3, 4, 6}. A block of 32 numbers is times 2^(scale − 127).
// One parameter is read at a time, into memory of its own. Threads: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "model/block.h"
#include "model/load_buffer.h"

namespace jige::model {

// Whether the files hold the parameter in a stacked tensor, and not by itself.
bool is_stacked(const formats::TensorFolder& files, const ParamSpec& spec);

// Checks types and shapes of what the files have. REQUIRES: is_stacked. Fails with kCorrupt or
// kUnsupported naming the tensor.
Status check_stacked(const formats::TensorFolder& files, const ParamSpec& spec);

// The parameter in the buffer, as [N, K] or [N] of its stored type, of bf16 where that is MXFP4;
// the team shares its rows. REQUIRES: is_stacked. Fails as check_stacked, and with kExhausted.
Result<TensorView> read_stacked(const formats::TensorFolder& files, const ParamSpec& spec,
                                ThreadTeam& team, LoadBuffer& buffer);

// What "<tensor>_blocks" and "<tensor>_scales" hold, as the tensor [E, K, N] of a folder in
// floating point, decoded expert by expert when its turn comes. Fails with kCorrupt or kUnsupported
// naming the tensor. REQUIRES: the files outlive it.
Result<formats::TensorSource> decoded_source(const formats::TensorFolder& files,
                                             const std::string& tensor, DType dtype);

// Whether a tensor of the language model holds matrices of experts as [E, K, N], where a folder of
// its family alone has them as [E, N, K] (Qwen3-VL).
bool is_turned_stack(const formats::ModelConfig& config, const formats::StoredTensor& tensor);

// The names under which files may hold a stacked tensor or its parts.
std::vector<std::string> stacked_names(const ParamSpec& spec);

// What half a byte stands for, without its scale. REQUIRES: half < 16.
float mxfp4_value(uint8_t half);

}  // namespace jige::model
