// What is wrong in a file that somebody else wrote is damage, not a request to correct.
//
//   return as_file_content(parse_model_config(json, path));
//
// Parsers of JSON say kInvalidArgument of a field of another type (base/json.h); of a file it is
// kCorrupt, as a value out of range is.
// Threads: pure function.
#pragma once

#include "base/result.h"

namespace jige {

template <typename T>
[[nodiscard]] Result<T> as_file_content(Result<T> result) {
  if (!result && result.error().code == Code::kInvalidArgument) {
    result.error().code = Code::kCorrupt;
  }
  return result;
}

}  // namespace jige
