// JSON in and out: nlohmann::json behind Result, with depth and size limits and errors that name
// the field. No exception of the library leaves json.cc.
//
//   JIGE_TRY(Json config, parse_json(text, path));
//   JIGE_TRY(const int64_t layers, get_int(config, "num_hidden_layers", path));
//   JIGE_TRY(const double eps, get_number_or(config, "rms_norm_eps", 1e-6, path));
//
// Threads: values; no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige {

using Json = nlohmann::ordered_json;

inline constexpr int kJsonDepthMax = 64;
// Members in one object; an ordered object looks each up among all before it, one by one.
inline constexpr size_t kJsonMembersMax = 16384;

// Parses one JSON text, in time linear in its length. `where` names the source in errors. Of a name
// given twice the last value counts. Fails with kCorrupt on a syntax error (with line and column),
// on nesting deeper than `depth_max`, on more than `values_max` values in all, on an object of more
// than kJsonMembersMax members, on invalid UTF-8 and on a NUL byte.
Result<Json> parse_json(std::string_view text, std::string_view where,
                        int depth_max = kJsonDepthMax, size_t values_max = SIZE_MAX);

// Serialises; invalid UTF-8 in strings becomes U+FFFD. indent < 0 writes one line.
std::string dump_json(const Json& json, int indent = -1);

// The member, or nullptr when it is absent or null, or `object` none.
const Json* find_field(const Json& object, std::string_view field);

// Typed members of an object. The plain forms fail with kNotFound when the field is absent; the
// `_or` forms give `fallback` when it is absent or null. A wrong type is kInvalidArgument.
Result<int64_t> get_int(const Json& object, std::string_view field, std::string_view where);
Result<int64_t> get_int_or(const Json& object, std::string_view field, int64_t fallback,
                           std::string_view where);
Result<double> get_number(const Json& object, std::string_view field, std::string_view where);
Result<double> get_number_or(const Json& object, std::string_view field, double fallback,
                             std::string_view where);
Result<bool> get_bool_or(const Json& object, std::string_view field, bool fallback,
                         std::string_view where);
Result<std::string> get_string(const Json& object, std::string_view field, std::string_view where);
Result<std::string> get_string_or(const Json& object, std::string_view field,
                                  std::string_view fallback, std::string_view where);

}  // namespace jige
