// Fields of a config.json as its readers need them.
//
// Internal to the model_config*.cc files.
// Threads: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"

namespace jige::formats {

// Whether a field is there, null or not.
inline bool present(const Json& object, std::string_view field) {
  return object.is_object() && object.contains(std::string(field));
}

// An integer that must be positive when it is there.
inline Result<int64_t> get_size_or(const Json& config, std::string_view field, int64_t fallback,
                                   std::string_view where) {
  JIGE_TRY(const int64_t value, get_int_or(config, field, fallback, where));
  if (find_field(config, field) && value < 1) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must be positive", where, field, value);
  }
  return value;
}

// Whole numbers are written as such: where transformers declares an integer, it takes no other.
inline Json number_or_whole(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

}  // namespace jige::formats
