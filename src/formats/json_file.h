// The small JSON files of model folders and checkpoints, read with limits.
//
// On top of base/json.h: a limit of bytes, duplicate names refused (which of the two counts is
// anybody's guess), the top must be an object.
// Threads: free functions, no shared state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::formats {

inline constexpr size_t kConfigBytesMax = size_t{4} << 20;

// Parses a JSON object. Fails as parse_json does, and with kCorrupt on duplicate names and a top
// that is no object.
Result<Json> parse_json_object(std::string_view text, std::string_view where);

// A text as Python's json writes it, made JSON: the words Infinity, -Infinity and NaN, which no
// JSON has, become {"__float__": "Infinity"} and so on, as transformers 5 writes them.
std::string json_of_python(std::string_view text);

// Reads and parses a file of at most `size_max` bytes; kNotFound when it is not there.
Result<Json> load_json_object(const std::string& path, size_t size_max = kConfigBytesMax);

}  // namespace jige::formats
