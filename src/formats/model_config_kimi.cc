#include "formats/model_config_kimi.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_recurrent.h"

namespace jige::formats {
namespace {

constexpr const char* kKimiHeads = "linear_num_heads";
constexpr const char* kKimiHeadDim = "linear_head_dim";
constexpr const char* kKimiKernel = "linear_conv_kernel_dim";
constexpr const char* kKimiObject = "linear_attn_config";
constexpr const char* kKimiAttention = "full_attn_layers";
constexpr const char* kKimiNets = "kda_layers";
constexpr int64_t kKimiHeadDimMax = 256;
constexpr int64_t kKimiInterval = 4;

// Marks the layers that a list names from 1 on; each once.
Status mark_layers(const Json& object, const char* field, uint8_t mark, std::vector<int>& marks,
                   std::string_view where) {
  const Json* list = find_field(object, field);
  if (!list || !list->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" of {} must be a list", where, field, kKimiObject);
  }
  for (const Json& entry : *list) {
    const Json wrapped = {{field, entry}};
    JIGE_TRY(const int64_t layer, get_int(wrapped, field, where));
    const auto count = static_cast<int64_t>(marks.size());
    if (layer < 1 || layer > count || marks[static_cast<size_t>(layer - 1)] >= 0) {
      return fail(Code::kCorrupt, "{}: field \"{}\" names layer {} of {}, or once more", where,
                  field, layer, count);
    }
    marks[static_cast<size_t>(layer - 1)] = mark;
  }
  return {};
}

// Where no list says so, every fourth layer but the first has attention.
Result<std::vector<uint8_t>> usual_kimi_layers(const Json* object, int64_t layer_count,
                                               std::string_view where) {
  std::vector<uint8_t> flags;
  const bool listed =
      object && find_field(*object, kKimiAttention) && find_field(*object, kKimiNets);
  if (!listed) {
    for (int64_t i = 0; i < layer_count; ++i) flags.push_back(i == 0 || i % kKimiInterval != 0);
    return flags;
  }
  std::vector<int> marks(static_cast<size_t>(layer_count), -1);
  JIGE_DO(mark_layers(*object, kKimiAttention, 0, marks, where));
  JIGE_DO(mark_layers(*object, kKimiNets, 1, marks, where));
  for (const int mark : marks) {
    if (mark < 0) {
      return fail(Code::kCorrupt, "{}: {} and {} of {} name not all of {} layers", where,
                  kKimiAttention, kKimiNets, kKimiObject, layer_count);
    }
    flags.push_back(static_cast<uint8_t>(mark));
  }
  return flags;
}

// A size, in the object of published folders first.
Result<int64_t> kimi_size(const Json& config, const Json* object, const char* inner,
                          const char* field, int64_t usual, std::string_view where) {
  if (object && find_field(*object, inner)) return get_int(*object, inner, where);
  return get_int_or(config, field, usual, where);
}

Status refuse_other_kimi(const Json& config, std::string_view where) {
  JIGE_TRY(const bool unturned, get_bool_or(config, "mla_use_nope", true, where));
  JIGE_TRY(const std::string scores,
           get_string_or(config, "moe_router_activation_func", "sigmoid", where));
  if (unturned && scores == "sigmoid") return {};
  return fail(Code::kUnsupported,
              "{}: mla_use_nope {} and moe_router_activation_func \"{}\" are not supported; they "
              "must be true and \"sigmoid\"",
              where, unturned, scores.substr(0, 80));
}

}  // namespace

Status parse_kimi_delta(const Json& config, ModelConfig& out, std::string_view where) {
  const Json* object = find_field(config, kKimiObject);
  if (object && !object->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be an object", where, kKimiObject);
  }
  JIGE_DO(refuse_other_kimi(config, where));
  DeltaConfig& delta = out.delta;
  JIGE_TRY(delta.value_heads, kimi_size(config, object, "num_heads", kKimiHeads, 32, where));
  JIGE_TRY(delta.value_dim, kimi_size(config, object, "head_dim", kKimiHeadDim, 128, where));
  JIGE_TRY(delta.kernel,
           kimi_size(config, object, "short_conv_kernel_size", kKimiKernel, 4, where));
  delta.key_heads = delta.value_heads;
  delta.key_dim = delta.value_dim;
  delta.by_key = delta.draws_steps = true;
  JIGE_TRY(std::vector<uint8_t> usual, usual_kimi_layers(object, out.layer_count, where));
  return parse_recurrent_layers(config, {kUsualLayerTypes}, std::move(usual), out, where);
}

void emit_kimi_delta(const ModelConfig& config, Json& out) {
  out[kKimiHeads] = config.delta.value_heads;
  out[kKimiHeadDim] = config.delta.value_dim;
  out[kKimiKernel] = config.delta.kernel;
  emit_recurrent_layers(config, kUsualLayerTypes, out);
}

Status check_kimi_delta(const ModelConfig& config, std::string_view where) {
  const DeltaConfig& delta = config.delta;
  const auto in_range = [&](const char* field, int64_t value, int64_t high) -> Status {
    if (value >= 1 && value <= high) return {};
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                field, value, high);
  };
  JIGE_DO(in_range(kKimiHeads, delta.value_heads, kHeadsMax));
  JIGE_DO(in_range(kKimiHeadDim, delta.value_dim, kKimiHeadDimMax));
  JIGE_DO(in_range(kKimiKernel, delta.kernel, kConvolutionMax));
  const DeltaConfig wanted{.key_heads = delta.value_heads,
                           .value_heads = delta.value_heads,
                           .key_dim = delta.value_dim,
                           .value_dim = delta.value_dim,
                           .kernel = delta.kernel,
                           .by_key = true,
                           .draws_steps = true};
  if (delta == wanted) return {};
  return fail(Code::kInvalidArgument,
              "{}: {} models have delta nets with keys like values and decays by key", where,
              family_name(config.family));
}

int64_t kimi_delta_parameter_count(const ModelConfig& config) {
  const DeltaConfig& delta = config.delta;
  const int64_t inner = delta.value_columns();
  const int64_t inputs = 3 * inner + delta.value_heads + 2 * delta.key_dim;
  return config.hidden_size * (inputs + inner) + 2 * delta.key_dim * inner +
         3 * inner * delta.kernel + delta.value_heads + inner + delta.value_dim;
}

}  // namespace jige::formats
