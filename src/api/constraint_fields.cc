#include "api/constraint_fields.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace jige::api {
namespace {

using Kind = grammar::ConstraintSource::Kind;

struct Wish {
  std::string param;
  grammar::ConstraintSource source;
};

void refuse_option(FieldReader& fields, const std::string& param, const std::string& what) {
  ApiError error = bad_field(param, "{}: {}", param, what);
  error.code = "unsupported_parameter";
  fields.refuse(std::move(error));
}

// A schema as vLLM's clients send it: the object, or its text.
Json schema_of(FieldReader& fields, const std::string& param, const Json& value) {
  if (!value.is_string()) return value;
  auto parsed = parse_json(value.get_ref<const std::string&>(), param);
  if (parsed) return std::move(*parsed);
  fields.refuse(bad_field(param, "{}", parsed.error().message));
  return Json();
}

void read_format(FieldReader& fields, std::vector<Wish>& wishes) {
  const Json* format = fields.find("response_format");
  if (!format) return;
  const Json* type = format->is_object() ? find_field(*format, "type") : nullptr;
  if (type && *type == "text") return;
  if (type && *type == "json_object") {
    wishes.push_back({"response_format", {Kind::kJsonObject, Json()}});
  } else if (type && *type == "json_schema") {
    const Json* named = find_field(*format, "json_schema");
    const Json* schema = named && named->is_object() ? find_field(*named, "schema") : nullptr;
    const std::string param = "response_format.json_schema.schema";
    if (!schema) return fields.refuse(bad_field(param, "{} must be a JSON schema", param));
    wishes.push_back({param, {Kind::kJsonSchema, *schema}});
  } else {
    refuse_option(fields, "response_format",
                  "its type must be \"text\", \"json_object\" or \"json_schema\", found " +
                      (type ? shown_value(*type) : shown_value(*format)));
  }
}

// Members of `object` that name a constraint, such as {"regex": "a*"}.
void read_members(FieldReader& fields, const Json& object, const std::string& prefix,
                  std::vector<Wish>& wishes) {
  static constexpr std::pair<const char*, Kind> kMembers[] = {{"json", Kind::kJsonSchema},
                                                              {"regex", Kind::kRegex},
                                                              {"choice", Kind::kChoices},
                                                              {"grammar", Kind::kEbnf}};
  for (const auto& [name, kind] : kMembers) {
    const std::string param = prefix + name;
    const Json* value = find_field(object, prefix == "guided_" ? param : name);
    if (!value) continue;
    wishes.push_back(
        {param, {kind, kind == Kind::kJsonSchema ? schema_of(fields, param, *value) : *value}});
  }
}

void read_structured(FieldReader& fields, std::vector<Wish>& wishes) {
  const Json* outputs = fields.find("structured_outputs");
  if (!outputs) return;
  if (!outputs->is_object()) {
    return fields.refuse(bad_field("structured_outputs",
                                   "structured_outputs must be an object, found {}",
                                   shown_value(*outputs)));
  }
  const std::string prefix = "structured_outputs.";
  for (const auto& [name, value] : outputs->items()) {
    if (name == "json" || name == "regex" || name == "choice" || name == "grammar") continue;
    if (value.is_null()) continue;
    if (name == "json_object" && value.is_boolean()) {
      if (value == true) wishes.push_back({prefix + name, {Kind::kJsonObject, Json()}});
      continue;
    }
    refuse_option(fields, prefix + name,
                  "only json, regex, choice, grammar and json_object (true or false) are "
                  "supported");
  }
  read_members(fields, *outputs, prefix, wishes);
}

}  // namespace

ApiResult<std::shared_ptr<grammar::Constraint>> compile_constraint(
    const ServedModel& model, const grammar::ConstraintSource& source, const std::string& param) {
  auto compiled = model.constraints->compile(source);
  if (compiled) return std::move(*compiled);
  const Error& error = compiled.error();
  if (error.code != Code::kUnavailable) {
    return tl::unexpected(bad_field(param, "{}: {}", param, error.message));
  }
  ApiError shown = to_api_error(error, param);
  shown.retry_after_s = 1;
  return tl::unexpected(std::move(shown));
}

std::shared_ptr<grammar::Constraint> read_constraint(FieldReader& fields,
                                                     const ServedModel& model) {
  std::vector<Wish> wishes;
  read_format(fields, wishes);
  read_members(fields, fields.object(), "guided_", wishes);
  read_structured(fields, wishes);
  if (fields.error() || wishes.empty()) return nullptr;
  if (wishes.size() > 1) {
    fields.refuse(bad_field(wishes[1].param, "{} and {} cannot both say what the answer is to be",
                            wishes[0].param, wishes[1].param));
    return nullptr;
  }
  auto compiled = compile_constraint(model, wishes[0].source, wishes[0].param);
  if (compiled) return std::move(*compiled);
  fields.refuse(std::move(compiled.error()));
  return nullptr;
}

std::optional<Json> response_schema(FieldReader& fields) {
  std::vector<Wish> wishes;
  read_format(fields, wishes);
  if (wishes.empty()) return std::nullopt;
  grammar::ConstraintSource& source = wishes[0].source;
  if (source.kind == Kind::kJsonObject) return Json{{"type", "object"}};
  return std::move(source.value);
}

}  // namespace jige::api
