// A plain validator of JSON schemas and random schemas for it, for the tests of this folder and of
// the API.
//
// Threads: one test at a time.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "base/json.h"
#include "base/rng.h"

namespace jige::grammar::testing {

inline size_t character_count(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool validates(const Json& value, const Json& schema, const Json& root);

inline bool is_of_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return std::string(value.type_name()) == type;
}

inline bool members_validate(const Json& value, const Json& schema, const Json& root) {
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, member] : value.items()) {
    const Json& own = properties.contains(name)                 ? properties[name]
                      : schema.contains("additionalProperties") ? schema["additionalProperties"]
                                                                : Json(true);
    if (!validates(member, own, root)) return false;
  }
  return true;
}

inline bool elements_validate(const Json& value, const Json& schema, const Json& root) {
  if (value.size() < schema.value("minItems", size_t{0})) return false;
  if (value.size() > schema.value("maxItems", SIZE_MAX)) return false;
  const Json prefix = schema.value("prefixItems", Json::array());
  for (size_t i = 0; i < value.size(); ++i) {
    const Json own = i < prefix.size() ? prefix[i] : schema.value("items", Json(true));
    if (!validates(value[i], own, root)) return false;
  }
  return true;
}

inline bool is_within_bounds(const Json& value, const Json& schema) {
  return (!schema.contains("minimum") || value >= schema["minimum"]) &&
         (!schema.contains("maximum") || value <= schema["maximum"]) &&
         (!schema.contains("exclusiveMinimum") || value > schema["exclusiveMinimum"]) &&
         (!schema.contains("exclusiveMaximum") || value < schema["exclusiveMaximum"]);
}

// As the specification has it; oneOf is read as anyOf.
inline bool validates(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.value("nullable", false) && value.is_null()) return true;
  if (schema.contains("$ref")) {
    const std::string place = schema["$ref"];
    return validates(value, root.at(Json::json_pointer(place.substr(1))), root);
  }
  for (const char* some : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(some)) continue;
    return std::any_of(schema[some].begin(), schema[some].end(),
                       [&](const Json& one) { return validates(value, one, root); });
  }
  const auto equals = [&](const Json& one) { return one == value; };
  if (schema.contains("const") && !equals(schema["const"])) return false;
  if (schema.contains("enum") &&
      std::none_of(schema["enum"].begin(), schema["enum"].end(), equals)) {
    return false;
  }
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    const auto fits = [&](const Json& type) { return is_of_type(value, type); };
    if (std::none_of(types.begin(), types.end(), fits)) return false;
  }
  if (value.is_number()) return is_within_bounds(value, schema);
  if (value.is_object()) return members_validate(value, schema, root);
  if (value.is_array()) return elements_validate(value, schema, root);
  if (!value.is_string()) return true;
  const std::string& text = value.get_ref<const std::string&>();
  if (character_count(text) < schema.value("minLength", size_t{0})) return false;
  if (character_count(text) > schema.value("maxLength", SIZE_MAX)) return false;
  return !schema.contains("pattern") ||
         std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
}

inline Json random_schema(Rng& rng, int depth);

inline Json random_object_schema(Rng& rng, int depth) {
  static const std::string kNames[] = {"a", "ab", "abc", "b", "x y", "q\"", "\u00e9"};
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  for (const std::string& name : kNames) {
    if (rng.below(3) > 0) continue;
    schema["properties"][name] = random_schema(rng, depth - 1);
    if (rng.below(2) == 0) required.push_back(name);
  }
  if (rng.below(4) == 0) required.push_back("more");
  if (rng.below(2) == 0) schema["additionalProperties"] = random_schema(rng, depth - 1);
  if (rng.below(2) == 0) schema["description"] = "words";
  if (!required.empty()) schema["required"] = required;
  return schema;
}

inline Json random_array_schema(Rng& rng, int depth) {
  Json schema = {{"type", "array"}};
  if (rng.below(2) == 0) schema["items"] = random_schema(rng, depth - 1);
  if (rng.below(3) == 0) {
    schema["prefixItems"] =
        Json::array({random_schema(rng, depth - 1), random_schema(rng, depth - 1)});
  }
  const bool bounded = rng.below(2) == 0;
  if (bounded) schema["maxItems"] = 2 + rng.below(3);
  if (rng.below(2) == 0) schema["minItems"] = rng.below(3);
  return schema;
}

inline Json random_leaf_schema(Rng& rng) {
  switch (rng.below(10)) {
    case 9:
      return {{"minimum", -0.5}, {"exclusiveMaximum", static_cast<double>(rng.below(9)) + 0.125}};
    case 8: {
      const int64_t low = static_cast<int64_t>(rng.below(3000)) - 1500;
      const auto high = low + static_cast<int64_t>(rng.below(200));
      return {{"type", "integer"},
              {rng.below(2) == 0 ? "minimum" : "exclusiveMinimum", low},
              {rng.below(2) == 0 ? "maximum" : "exclusiveMaximum", high + 2}};
    }
    case 0:
      return {{"enum", {"red", 5, nullptr, Json::object({{"a", 1}}), "re\"d\n"}}};
    case 1:
      return {{"const", "x"}};
    case 2:
      return {{"type", "string"}, {"minLength", rng.below(4)}, {"maxLength", 4}};
    case 3:
      return {{"type", "string"}, {"pattern", "^[a-c]{2}(\"|\\\\)?\\d*$"}};
    case 4:
      return {{"type", {"integer", "null"}}};
    case 5:
      return {{"type", "number"}, {"nullable", true}};
    case 6:
      return {{"type", "boolean"}};
    default:
      return rng.below(3) == 0 ? Json(true) : Json{{"type", "string"}, {"format", "date"}};
  }
}

inline Json random_schema(Rng& rng, int depth) {
  if (depth <= 0) return random_leaf_schema(rng);
  switch (rng.below(6)) {
    case 0:
    case 1:
      return random_object_schema(rng, depth);
    case 2:
      return random_array_schema(rng, depth);
    case 3:
      return {{rng.below(2) == 0 ? "anyOf" : "oneOf",
               {random_schema(rng, depth - 1), random_schema(rng, depth - 1)}}};
    case 4:
      return {{"$ref", "#/$defs/node"}};
    default:
      return random_leaf_schema(rng);
  }
}

// A schema with a definition that refers to itself.
inline Json random_root_schema(Rng& rng) {
  Json schema = random_object_schema(rng, 3);
  schema["$defs"]["node"] = {
      {"type", "object"},
      {"properties",
       {{"value", random_leaf_schema(rng)},
        {"next", {{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}}}}},
      {"required", {"value", "next"}},
      {"additionalProperties", false}};
  return schema;
}

}  // namespace jige::grammar::testing
