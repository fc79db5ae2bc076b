// Encoders as BERT and RoBERTa are, whose tokens see each other: their sizes, the row of positions
// that a text begins at, and the table of token types.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

// Whether a class of transformers has the family's encoder, whatever heads stand on it.
bool is_encoder_class(const FamilyInfo& family, std::string_view name);
// Sets what parse_model_config() sets of the sizes of other families. Fails with kUnsupported on
// what Jige does not compute, and with kCorrupt naming the field.
Status parse_encoder(const Json& config, ModelConfig& out, std::string_view where);
void emit_encoder(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument where an encoder's fields contradict each other.
Status check_encoder(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
