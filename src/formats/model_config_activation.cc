#include "formats/model_config_activation.h"

#include <nlohmann/json.hpp>
#include <string>

#include "formats/model_families.h"

namespace jige::formats {

Result<ActivationKind> parse_plain_activation(const Json& config, const char* field,
                                              const ModelConfig& out, std::string_view where) {
  if (!find_field(config, field)) return family_info(out.family).activation;
  JIGE_TRY(const std::string name, get_string(config, field, where));
  std::string known;
  for (const PlainActivation& one : kPlainActivations) {
    if (one.name == name) return one.kind;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  return fail(Code::kUnsupported, "{}: {} \"{}\" is not supported; supported are {}", where, field,
              name, known);
}

std::string_view plain_activation_name(ActivationKind activation) {
  for (const PlainActivation& one : kPlainActivations) {
    if (one.kind == activation) return one.name;
  }
  return "gelu_new";
}

}  // namespace jige::formats
