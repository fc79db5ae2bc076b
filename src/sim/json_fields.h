// Fields of the JSON files of this folder, each within its range.
//
// Errors name `where`, the field, its value and the range: kNotFound where it is missing,
// kInvalidArgument where it is something else. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::sim {

Result<const Json*> object_in(const Json& json, std::string_view name, std::string_view where);
Result<const Json*> list_in(const Json& json, std::string_view name, std::string_view where);
// 0..max.
Result<double> number_in(const Json& json, const char* name, double max, std::string_view where);
Result<int64_t> count_in(const Json& json, const char* name, int64_t min, int64_t max,
                         std::string_view where);

}  // namespace jige::sim
