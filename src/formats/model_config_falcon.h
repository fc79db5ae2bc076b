// What only Falcon (7B, 40B, 11B) says in its config.json: how its heads share keys, and how the
// parts of its layers stand.
//
//   new_decoder_architecture  num_kv_heads heads of keys; parts side by side, behind
//                             num_ln_in_parallel_attn norms (2)
//   else                      one such head, or where multi_query is false as many as heads; parts
//                             side by side behind one norm, or where parallel_attn is false one
//                             after the other
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

Result<int64_t> parse_falcon_kv_heads(const Json& config, const ModelConfig& out,
                                      std::string_view where);
// Sets how the parts stand.
Status parse_falcon(const Json& config, ModelConfig& out, std::string_view where);
void emit_falcon(const ModelConfig& config, Json& out);
// That such a config.json can say it. Fails with kInvalidArgument. REQUIRES: the family is Falcon.
Status check_falcon(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
