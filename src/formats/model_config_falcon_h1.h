// The multipliers of Falcon-H1: numbers beside the weights that what parts of a layer read, give or
// make is multiplied with; and which biases and norm its layers of Mamba 2 have.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets scales, and of mamba2 what no other family has. REQUIRES: the family is Falcon-H1.
Status parse_falcon_h1(const Json& config, ModelConfig& out, std::string_view where);
void emit_falcon_h1(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument, also where another family is given such numbers.
Status check_falcon_h1(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
