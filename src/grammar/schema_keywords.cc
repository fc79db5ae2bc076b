#include "grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "grammar/json_rules.h"
#include "grammar/schema.h"

namespace jige::grammar {
namespace {

enum class Form {
  kTypes,
  kValues,
  kAny,
  kBoolean,
  kText,
  kCount,
  kNumber,
  kSchema,
  kSchemas,
  kMap,
  kNames
};

struct Keyword {
  std::string_view name;
  Form form;
  std::string_view type;  // that it is about; empty: all
};

constexpr Keyword kKeywords[] = {
    {"type", Form::kTypes, ""},
    {"enum", Form::kValues, ""},
    {"const", Form::kAny, ""},
    {"nullable", Form::kBoolean, ""},
    {"$ref", Form::kText, ""},
    {"anyOf", Form::kSchemas, ""},
    {"oneOf", Form::kSchemas, ""},
    {"allOf", Form::kSchemas, ""},
    {"properties", Form::kMap, "object"},
    {"required", Form::kNames, "object"},
    {"additionalProperties", Form::kSchema, "object"},
    {"items", Form::kSchema, "array"},
    {"prefixItems", Form::kSchemas, "array"},
    {"minItems", Form::kCount, "array"},
    {"maxItems", Form::kCount, "array"},
    {"minLength", Form::kCount, "string"},
    {"maxLength", Form::kCount, "string"},
    {"pattern", Form::kText, "string"},
    {"minimum", Form::kNumber, "number"},
    {"maximum", Form::kNumber, "number"},
    {"exclusiveMinimum", Form::kNumber, "number"},
    {"exclusiveMaximum", Form::kNumber, "number"},
};

constexpr std::string_view kAnnotations[] = {
    "title",    "description", "default",    "examples",     "example", "$schema",
    "$id",      "$comment",    "$anchor",    "format",       "$defs",   "definitions",
    "readOnly", "writeOnly",   "deprecated", "discriminator"};

constexpr std::string_view kTypes[] = {"object", "array",   "string", "integer",
                                       "number", "boolean", "null"};

bool is_type(const Json& value) {
  return value.is_string() &&
         std::ranges::find(kTypes, value.get_ref<const std::string&>()) != std::end(kTypes);
}

template <typename Good>
bool is_list_of(const Json& value, const Good& good) {
  return value.is_array() && std::all_of(value.begin(), value.end(), good);
}

bool is_schema(const Json& value) { return value.is_object() || value.is_boolean(); }

// What a value of the form must be; empty: it is.
std::string_view wanted_form(Form form, const Json& value) {
  switch (form) {
    case Form::kTypes:
      if (is_type(value) || (is_list_of(value, is_type) && !value.empty())) return {};
      return "one of object, array, string, integer, number, boolean, null, or a list of them";
    case Form::kValues:
      return value.is_array() && !value.empty() ? "" : "a list of at least one value";
    case Form::kAny:
      return {};
    case Form::kBoolean:
      return value.is_boolean() ? "" : "true or false";
    case Form::kText:
      return value.is_string() ? "" : "a text";
    case Form::kCount:
      return value.is_number_integer() && value >= 0 && value <= kRepeatMax
                 ? ""
                 : "a whole number from 0 to 10000";
    case Form::kNumber:
      return value.is_number() ? "" : "a number";
    case Form::kSchema:
      return is_schema(value) ? "" : "a schema";
    case Form::kSchemas:
      return is_list_of(value, is_schema) && !value.empty() ? "" : "a list of schemas";
    case Form::kMap:
      return value.is_object() && std::all_of(value.begin(), value.end(), is_schema)
                 ? ""
                 : "an object of schemas";
    case Form::kNames:
      return is_list_of(value, [](const Json& name) { return name.is_string(); })
                 ? ""
                 : "a list of texts";
  }
  return {};
}

const Keyword* find_keyword(std::string_view name) {
  const auto found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found == std::end(kKeywords) ? nullptr : found;
}

// Keywords that say all there is to say of a value, and what may stand beside them.
Status check_alone(const Json& schema, const std::string& path) {
  for (const char* name : {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"}) {
    if (!schema.contains(name)) continue;
    const bool values = std::string_view(name) == "enum" || std::string_view(name) == "const";
    for (const auto& [other, value] : schema.items()) {
      if (other == name || other == "nullable" || !find_keyword(other)) continue;
      if (values && other == "type") continue;
      return fail(Code::kUnsupported, "{}/{} is not supported beside {}", path, other, name);
    }
  }
  if (schema.contains("allOf") && schema["allOf"].size() != 1) {
    return fail(Code::kUnsupported, "{}/allOf is not supported with more than one schema", path);
  }
  const bool lengths = schema.contains("minLength") || schema.contains("maxLength");
  if (schema.contains("pattern") && lengths) {
    return fail(
        Code::kUnsupported,
        "{}/pattern is not supported beside minLength or maxLength; put the length into the "
        "pattern",
        path);
  }
  return {};
}

// The number, or the next whole one in the direction of `round`, at most one beyond those that an
// IntegerRange has.
int64_t whole_bound(const Json& number, double (*round)(double)) {
  constexpr int64_t kBeyond = kIntegerMax + 1;
  if (number.is_number_unsigned()) {
    return static_cast<int64_t>(std::min(number.get<uint64_t>(), uint64_t{kBeyond}));
  }
  if (number.is_number_integer()) return std::clamp(number.get<int64_t>(), -kBeyond, kBeyond);
  constexpr auto kFarthest = static_cast<double>(kBeyond);
  return static_cast<int64_t>(std::clamp(round(number.get<double>()), -kFarthest, kFarthest));
}

double floor_of(double value) { return std::floor(value); }
double ceil_of(double value) { return std::ceil(value); }

}  // namespace

Status check_keywords(const Json& schema, const std::string& path) {
  if (!schema.is_object()) {
    return fail(Code::kInvalidArgument, "{} must be a schema: an object, true or false", path);
  }
  for (const auto& [name, value] : schema.items()) {
    if (std::ranges::find(kAnnotations, name) != std::end(kAnnotations)) continue;
    const Keyword* keyword = find_keyword(name);
    if (!keyword) return fail(Code::kUnsupported, "{}/{} is not supported", path, name);
    const std::string_view wanted = wanted_form(keyword->form, value);
    if (!wanted.empty()) {
      return fail(Code::kInvalidArgument, "{}/{} must be {}", path, name, wanted);
    }
  }
  return check_alone(schema, path);
}

std::vector<std::string> types_of(const Json& schema) {
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    return type.is_string() ? std::vector{type.get<std::string>()}
                            : type.get<std::vector<std::string>>();
  }
  std::vector<std::string> types;
  for (const auto& [name, value] : schema.items()) {
    const Keyword* keyword = find_keyword(name);
    if (!keyword || keyword->type.empty()) continue;
    if (std::ranges::find(types, keyword->type) == types.end()) types.emplace_back(keyword->type);
  }
  return types;
}

bool is_of_types(const Json& value, const std::vector<std::string>& types) {
  return types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
           if (type == "object") return value.is_object();
           if (type == "array") return value.is_array();
           if (type == "string") return value.is_string();
           if (type == "integer") return value.is_number_integer();
           if (type == "number") return value.is_number();
           if (type == "boolean") return value.is_boolean();
           return value.is_null();
         });
}

Result<Counts> counts_of(const Json& schema, std::string_view min, std::string_view max,
                         const std::string& path) {
  Counts counts;
  if (const Json* least = find_field(schema, min)) counts.min = least->get<int32_t>();
  if (const Json* most = find_field(schema, max)) counts.max = most->get<int32_t>();
  if (counts.max != kUnbounded && counts.max < counts.min) {
    return fail(Code::kInvalidArgument, "{}/{} is {}, below {}, {}", path, max, counts.max, min,
                counts.min);
  }
  return counts;
}

Result<std::optional<IntegerRange>> integers_of(const Json& schema, const std::string& path) {
  IntegerRange range;
  bool bounded = false;
  if (const Json* bound = find_field(schema, "minimum")) {
    range.low = std::max(range.low, whole_bound(*bound, ceil_of));
    bounded = true;
  }
  if (const Json* bound = find_field(schema, "exclusiveMinimum")) {
    range.low = std::max(range.low, whole_bound(*bound, floor_of) + 1);
    bounded = true;
  }
  if (const Json* bound = find_field(schema, "maximum")) {
    range.high = std::min(range.high, whole_bound(*bound, floor_of));
    bounded = true;
  }
  if (const Json* bound = find_field(schema, "exclusiveMaximum")) {
    range.high = std::min(range.high, whole_bound(*bound, ceil_of) - 1);
    bounded = true;
  }
  if (!bounded) return std::nullopt;
  if (range.low <= range.high) return range;
  return fail(Code::kInvalidArgument,
              "{}: no whole number of up to {} digits is within minimum and maximum", path,
              kDigitsMax);
}

std::optional<NumberRange> numbers_of(const Json& schema) {
  NumberRange range;
  for (const bool exclusive : {false, true}) {
    if (const Json* bound = find_field(schema, exclusive ? "exclusiveMinimum" : "minimum")) {
      range.raise_low(NumberBound::from_json(*bound, exclusive));
    }
    if (const Json* bound = find_field(schema, exclusive ? "exclusiveMaximum" : "maximum")) {
      range.lower_high(NumberBound::from_json(*bound, exclusive));
    }
  }
  if (!range.low && !range.high) return std::nullopt;
  return range;
}

Result<const Json*> find_reference(const Json& root, const Json& reference,
                                   const std::string& path) {
  const auto& text = reference.get_ref<const std::string&>();
  if (text != "#" && !text.starts_with("#/")) {
    return fail(Code::kUnsupported,
                "{}/$ref is \"{}\"; only places in the same schema (#/…) are "
                "supported",
                path, text);
  }
  const Json* place = &root;
  for (size_t at = 1; at < text.size();) {
    const size_t end = std::min(text.find('/', at + 1), text.size());
    std::string name = text.substr(at + 1, end - at - 1);
    for (const auto& [code, plain] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
      for (size_t i = 0; (i = name.find(code, i)) != std::string::npos; ++i) {
        name.replace(i, 2, plain);
      }
    }
    const Json* below = nullptr;
    if (place->is_object()) {
      const auto found = place->find(name);
      if (found != place->end()) below = &*found;
    } else if (place->is_array() && !name.empty() && name.size() < 6 &&
               name.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<size_t>(std::stoi(name));
      if (index < place->size()) below = &(*place)[index];
    }
    if (!below) {
      return fail(Code::kInvalidArgument, "{}/$ref: there is no \"{}\" in the schema", path, text);
    }
    place = below;
    at = end;
  }
  return place;
}

std::vector<std::string> ObjectMembers::names() const {
  std::vector<std::string> names;
  for (const ObjectMember& member : listed) names.push_back(member.name);
  return names;
}

Result<ObjectMembers> members_of(const Json& schema, const std::string& path) {
  static const Json any = true;
  ObjectMembers members{.additional_path = path + "/additionalProperties"};
  const bool open = !schema.contains("additionalProperties");
  if (!open && schema["additionalProperties"] != false) {
    members.additional = &schema["additionalProperties"];
  }
  std::set<std::string> required;
  if (schema.contains("required")) required = schema["required"].get<std::set<std::string>>();
  if (const Json* properties = find_field(schema, "properties")) {
    for (const auto& [name, value] : properties->items()) {
      members.listed.push_back(
          {name, &value, path + "/properties/" + name, required.erase(name) > 0});
    }
  } else if (open) {
    members.additional = &any;
  }
  for (const std::string& name : required) {  // but not listed
    const Json* value = open ? &any : members.additional;
    if (!value) {
      return fail(Code::kInvalidArgument,
                  "{}/required names \"{}\", which is no property, and others may not be there",
                  path, name);
    }
    members.listed.push_back({name, value, members.additional_path, true});
  }
  for (const ObjectMember& member : members.listed) {
    if (member.name.size() <= kPropertyNameBytesMax) continue;
    return fail(Code::kInvalidArgument, "{}: a property's name has {} bytes; at most {} are taken",
                path, member.name.size(), kPropertyNameBytesMax);
  }
  return members;
}

}  // namespace jige::grammar
