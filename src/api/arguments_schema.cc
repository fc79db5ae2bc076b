#include "api/arguments_schema.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "grammar/schema_keywords.h"

namespace jige::api {
namespace {

constexpr int kDepthMax = 16;
constexpr int kBranchesMax = 256;

class Opener {
 public:
  explicit Opener(const Json& root) : root_(root) {}

  // `schema` as one of objects alone.
  Result<Json> open(const Json& schema, const std::string& path, int depth) {
    if (!schema.is_object()) {
      return fail(Code::kUnsupported, "{} must be a schema of objects where a call is forced",
                  path);
    }
    if (depth > kDepthMax || ++branch_count_ > kBranchesMax) {
      return fail(Code::kUnsupported,
                  "{}: references and alternatives go on for too long where a call is forced",
                  path);
    }
    if (const Json* reference = find_field(schema, "$ref")) {
      if (!reference->is_string()) {
        return fail(Code::kInvalidArgument, "{}/$ref must be a text", path);
      }
      JIGE_TRY(const Json* target, grammar::find_reference(root_, *reference, path));
      JIGE_TRY(Json opened, open(*target, reference->get<std::string>(), depth + 1));
      for (const auto& [name, value] : schema.items()) {
        if (name != "$ref" && !opened.contains(name)) opened[name] = value;
      }
      return opened;
    }
    Json opened = schema;
    opened.erase("nullable");
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (!opened.contains(name)) continue;
      JIGE_DO(open_list(opened[name], path + "/" + name, depth));
      return opened;
    }
    if (const Json* type = find_field(opened, "type"); type && !may_be_object(*type)) {
      return fail(Code::kUnsupported, "{}/type must be \"object\" where a call is forced", path);
    }
    opened["type"] = "object";
    return opened;
  }

 private:
  static bool may_be_object(const Json& type) {
    if (type == "object") return true;
    for (const Json& one : type.is_array() ? type : Json::array()) {
      if (one == "object") return true;
    }
    return false;
  }

  Status open_list(Json& list, const std::string& path, int depth) {
    if (!list.is_array()) return fail(Code::kInvalidArgument, "{} must be a list", path);
    for (size_t i = 0; i < list.size(); ++i) {
      JIGE_TRY(Json branch, open(list[i], fmt::format("{}/{}", path, i), depth + 1));
      list[i] = std::move(branch);
    }
    return {};
  }

  const Json& root_;
  int branch_count_ = 0;
};

}  // namespace

Result<Json> arguments_schema(const Json* parameters) {
  if (!parameters) return Json{{"type", "object"}, {"properties", Json::object()}};
  return Opener(*parameters).open(*parameters, "#", 0);
}

}  // namespace jige::api
