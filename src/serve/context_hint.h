// What to advise where a text is longer than the context.
//
// Threads: pure.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace jige::serve {

// Behind "shorten it": the flag that would help, where the model itself holds more than it was
// loaded with; else nothing.
inline std::string context_hint(int64_t context_max, int64_t model_context_max) {
  if (model_context_max <= context_max) return "";
  return fmt::format(", or load the model with a longer --context, {} at most", model_context_max);
}

}  // namespace jige::serve
