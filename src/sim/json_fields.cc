#include "sim/json_fields.h"

#include <nlohmann/json.hpp>

namespace jige::sim {
namespace {

Result<const Json*> field_in(const Json& json, std::string_view name, std::string_view where,
                             bool is_list) {
  const Json* const found = find_field(json, name);
  if (!found) return fail(Code::kNotFound, "{}: field \"{}\" is missing", where, name);
  if (is_list ? found->is_array() : found->is_object()) return found;
  return fail(Code::kInvalidArgument, "{}: field \"{}\" must be {}", where, name,
              is_list ? "a list" : "an object");
}

}  // namespace

Result<const Json*> object_in(const Json& json, std::string_view name, std::string_view where) {
  return field_in(json, name, where, /*is_list=*/false);
}

Result<const Json*> list_in(const Json& json, std::string_view name, std::string_view where) {
  return field_in(json, name, where, /*is_list=*/true);
}

Result<double> number_in(const Json& json, const char* name, double max, std::string_view where) {
  JIGE_TRY(const double value, get_number(json, name, where));
  if (value >= 0 && value <= max) return value;
  return fail(Code::kInvalidArgument, "{}: {} is {}; it must be in 0..{}", where, name, value, max);
}

Result<int64_t> count_in(const Json& json, const char* name, int64_t min, int64_t max,
                         std::string_view where) {
  JIGE_TRY(const int64_t value, get_int(json, name, where));
  if (value >= min && value <= max) return value;
  return fail(Code::kInvalidArgument, "{}: {} is {}; it must be in {}..{}", where, name, value, min,
              max);
}

}  // namespace jige::sim
