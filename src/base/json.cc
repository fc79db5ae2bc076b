#include "base/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_error.h"

namespace jige {
namespace {

// The member, or nullptr when it is absent or null.
const Json* find_member(const Json& object, std::string_view field) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(field));
  if (it == object.end() || it->is_null()) return nullptr;
  return &*it;
}

tl::unexpected<Error> wrong_type(const Json& value, std::string_view field, std::string_view where,
                                 std::string_view wanted) {
  std::string shown = dump_json(value);
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  return fail(Code::kInvalidArgument, "{}: field \"{}\" must be {}, found {}", where, field, wanted,
              shown);
}

tl::unexpected<Error> absent(std::string_view field, std::string_view where) {
  return fail(Code::kNotFound, "{}: field \"{}\" is missing", where, field);
}

// The value as an integer; numbers such as 1e3 and 2.0 count, 2.5 does not.
bool as_int(const Json& value, int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return false;
    out = static_cast<int64_t>(number);
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<int64_t>();
    return true;
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (!(std::fabs(number) < 9e15) || number != std::floor(number)) return false;
    out = static_cast<int64_t>(number);
    return true;
  }
  return false;
}

enum class Excess { kNone, kDepth, kMembers };

// Looks at brackets, colons and strings alone; what makes no sense the parser tells. (Its callback
// could count too, but makes it go through a whole list after every object in it.)
Excess excess_of(std::string_view text, size_t depth_max) {
  std::vector<size_t> members(depth_max + 1, 0);  // so far, of the object at each depth
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return Excess::kDepth;
      members[depth] = 0;
    } else if (c == '}' || c == ']') {
      if (depth-- == 0) return Excess::kNone;
    } else if (c == ':') {
      if (++members[depth] > kJsonMembersMax) return Excess::kMembers;
    }
  }
  return Excess::kNone;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where, int depth_max) {
  switch (excess_of(text, static_cast<size_t>(depth_max))) {
    case Excess::kDepth:
      return fail(Code::kCorrupt, "{}: JSON is nested deeper than {} levels", where, depth_max);
    case Excess::kMembers:
      return fail(Code::kCorrupt, "{}: a JSON object has more than {} members", where,
                  kJsonMembersMax);
    case Excess::kNone:
      break;
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const std::exception& error) {
    return fail(Code::kCorrupt, "{}: not valid JSON: {}", where,
                json_error_text(error.what(), text));
  }
}

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Result<int64_t> get_int(const Json& object, std::string_view field, std::string_view where) {
  const Json* value = find_member(object, field);
  if (!value) return absent(field, where);
  int64_t number = 0;
  if (!as_int(*value, number)) return wrong_type(*value, field, where, "an integer");
  return number;
}

Result<int64_t> get_int_or(const Json& object, std::string_view field, int64_t fallback,
                           std::string_view where) {
  if (!find_member(object, field)) return fallback;
  return get_int(object, field, where);
}

Result<double> get_number(const Json& object, std::string_view field, std::string_view where) {
  const Json* value = find_member(object, field);
  if (!value) return absent(field, where);
  if (!value->is_number()) return wrong_type(*value, field, where, "a number");
  return value->get<double>();
}

Result<double> get_number_or(const Json& object, std::string_view field, double fallback,
                             std::string_view where) {
  if (!find_member(object, field)) return fallback;
  return get_number(object, field, where);
}

Result<bool> get_bool_or(const Json& object, std::string_view field, bool fallback,
                         std::string_view where) {
  const Json* value = find_member(object, field);
  if (!value) return fallback;
  if (!value->is_boolean()) return wrong_type(*value, field, where, "true or false");
  return value->get<bool>();
}

Result<std::string> get_string(const Json& object, std::string_view field, std::string_view where) {
  const Json* value = find_member(object, field);
  if (!value) return absent(field, where);
  if (!value->is_string()) return wrong_type(*value, field, where, "a string");
  return value->get<std::string>();
}

Result<std::string> get_string_or(const Json& object, std::string_view field,
                                  std::string_view fallback, std::string_view where) {
  if (!find_member(object, field)) return std::string(fallback);
  return get_string(object, field, where);
}

}  // namespace jige
