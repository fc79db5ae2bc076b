// The small JSON files of model folders and checkpoints, read with limits.
//
// On top of base/json_object.h, which refuses names given twice (which of the two counts is
// anybody's guess): a limit of bytes.
// Threads: free functions, no shared state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_object.h"
#include "base/result.h"

namespace jige::formats {

inline constexpr size_t kConfigBytesMax = size_t{4} << 20;

// A text as Python's json writes it, made JSON: the words Infinity, -Infinity and NaN, which no
// JSON has, become {"__float__": "Infinity"} and so on, as transformers 5 writes them.
std::string json_of_python(std::string_view text);

// Reads and parses a file of at most `size_max` bytes; kNotFound when it is not there.
Result<Json> load_json_object(const std::string& path, size_t size_max = kConfigBytesMax);

}  // namespace jige::formats
