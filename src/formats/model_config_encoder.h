// Encoders, whose tokens see each other: the sizes of those that are as BERT and RoBERTa, the row
// of positions that a text begins at, and the table of token types; the windows and angles of
// ModernBERT.
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

// The rows of the table of token types.
Status parse_token_types(const Json& config, ModelConfig& out, std::string_view where);
// Of NomicBERT: heads turn by other angles in texts longer than "max_trained_positions" where there
// is a "rotary_scaling_factor"; no text is then.
Status parse_trained_context(const Json& config, ModelConfig& out, std::string_view where);

// Of ModernBERT: "local_attention", the window of both sides together, as that of one side, and how
// the heads of layers without a window and with it turn, by "rope_parameters" or by
// "global_rope_theta" and "local_rope_theta". Fail with kCorrupt or kUnsupported naming the field.
Status parse_side_window(const Json& config, ModelConfig& out, std::string_view where);
Status parse_side_ropes(const Json& config, ModelConfig& out, std::string_view where);
void emit_side_windows(const ModelConfig& config, Json& out);
void emit_side_ropes(const ModelConfig& config, Json& out);

// Fails with kInvalidArgument where an encoder's fields contradict each other.
Status check_encoder(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
