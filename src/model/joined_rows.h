// Parameters whose rows files have in tensors that follow one another, wherever these are cut, or
// in one tensor of all (JoinedRows): transformers cuts the convolutions of OLMo Hybrid into three
// equal parts when it writes them, whatever queries, keys and values have.
//
// Threads: free functions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "formats/tensor_folder.h"
#include "model/block.h"
#include "model/load_buffer.h"

namespace jige::model {

// Whether the parameter has to be put together: no tensor of its own name has its shape, but there
// are some of those that it may be in.
bool is_joined(const formats::TensorFolder& files, const ParamSpec& spec);

// Checks types and shapes of what the files have. REQUIRES: is_joined. Fails with kCorrupt,
// kNotFound or kUnsupported naming the tensor.
Status check_joined(const formats::TensorFolder& files, const ParamSpec& spec);

// The parameter in the buffer, of its stored type. REQUIRES: is_joined. Fails as check_joined, and
// with kExhausted.
Result<TensorView> read_joined(const formats::TensorFolder& files, const ParamSpec& spec,
                               LoadBuffer& buffer);

// The names under which files may hold the tensors.
std::vector<std::string> joined_names(const ParamSpec& spec);

}  // namespace jige::model
