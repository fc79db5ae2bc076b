// DeBERTa v2 and v3: the table of rows by distance, how scores come of it, and whether tokens have
// learned positions besides.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets distance_rows and position. Fails with kUnsupported on what Jige does not compute, kCorrupt
// naming the field. REQUIRES: the other sizes are set.
Status parse_deberta(const Json& config, ModelConfig& out, std::string_view where);
void emit_deberta(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument where the table contradicts itself or the family.
Status check_deberta(const ModelConfig& config, std::string_view where);

// Parameters of the table and of what projects its rows.
int64_t distance_row_parameters(const ModelConfig& config);

}  // namespace jige::formats
