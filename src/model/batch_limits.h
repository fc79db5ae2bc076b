// What the checks of a model's batches share. Threads: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "ops/attention.h"

namespace jige::model {

// Cache blocks of so many tokens.
inline int64_t kv_blocks_for(int64_t token_count) {
  return (token_count + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

// Fails with kInvalidArgument naming what is not in [low, high].
inline Status check_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return {};
  return fail(Code::kInvalidArgument, "{} is {}; it must be in {}..{}", name, value, low, high);
}

}  // namespace jige::model
