// What all models of a family have, asked of one.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Fails with kInvalidArgument and what all models of the family have, unless that `holds`.
inline Status require_feature(bool holds, Family family, std::string_view feature,
                              std::string_view where) {
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{}: {} models have {}", where, family_name(family), feature);
}

}  // namespace jige::formats
