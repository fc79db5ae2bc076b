#include "formats/model_config_mamba2.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_falcon_h1.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_parts.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// How a family spells its fields, and what it takes where they are left out.
struct MambaFields {
  const char* heads = "mamba_n_heads";
  const char* head_dim = "mamba_d_head";
  const char* groups = "mamba_n_groups";
  const char* state_dim = "mamba_d_state";
  const char* kernel = "mamba_d_conv";
  const char* conv_bias = "mamba_conv_bias";
  const char* bias = "mamba_proj_bias";
  // What the columns of all heads are, of heads by head_dim: a field, or `expand` times the width.
  const char* columns = nullptr;
  int64_t columns_default = 0;
  const char* expand = "mamba_expand";
  bool by_width = true;          // columns follow from the width
  int64_t head_dim_default = 0;  // 0: what the columns leave
  int64_t groups_default = 1;
  int64_t state_dim_default = 256;
};

MambaFields mamba_fields(Family family) {
  if (family == Family::kMamba2) {
    return {.heads = "num_heads",
            .head_dim = "head_dim",
            .groups = "n_groups",
            .state_dim = "state_size",
            .kernel = "conv_kernel",
            .conv_bias = "use_conv_bias",
            .bias = "use_bias",
            .expand = "expand",
            .head_dim_default = 64,
            .groups_default = 8,
            .state_dim_default = 128};
  }
  if (family == Family::kFalconH1) return {.columns = "mamba_d_ssm", .columns_default = 1024};
  if (family != Family::kNemotronH) return {};
  return {.heads = "mamba_num_heads",
          .head_dim = "mamba_head_dim",
          .groups = "n_groups",
          .state_dim = "ssm_state_size",
          .kernel = "conv_kernel",
          .conv_bias = "use_conv_bias",
          .bias = "use_bias",
          .by_width = false,
          .head_dim_default = 64,
          .groups_default = 8,
          .state_dim_default = 128};
}

constexpr const char* kStepLimit = "time_step_limit";
// transformers holds the steps of Nemotron-H above this, 0.001 where it is left out; it takes its
// logarithm, too.
constexpr const char* kStepMin = "time_step_min";
constexpr double kStepMinWritten = 1e-30;
constexpr const char* kPositions = "position_embedding_type";
constexpr const char* kMambaAttentionList = "attn_layer_indices";
constexpr int64_t kMambaStateDimMax = 256;
constexpr int64_t kMambaExpandMax = 64;

// Steps are softplus(…) as they come; transformers writes infinity as an object, older versions as
// a word that is no JSON.
Status refuse_step_limits(const Json& config, std::string_view where) {
  const Json* limits = find_field(config, kStepLimit);
  if (!limits) return {};
  const Json infinite = {{"__float__", "Infinity"}};
  if (limits->is_array() && limits->size() == 2 && (*limits)[0] == 0.0 &&
      (*limits)[1] == infinite) {
    return {};
  }
  return fail(Code::kUnsupported,
              "{}: field \"{}\" is {}; supported are steps without limits, from 0 to infinity",
              where, kStepLimit, dump_json(*limits).substr(0, 80));
}

// Of all heads together, where config.json says them: null is mamba_expand times the width.
Result<int64_t> parse_mamba_columns(const Json& config, const ModelConfig& out,
                                    std::string_view where) {
  const MambaFields fields = mamba_fields(out.family);
  if (fields.columns && (find_field(config, fields.columns) || !present(config, fields.columns))) {
    JIGE_TRY(const int64_t columns,
             get_size_or(config, fields.columns, fields.columns_default, where));
    if (columns <= kHeadsMax * kMambaStateDimMax) return columns;
    return fail(Code::kCorrupt, "{}: {} ({}) is over the limit of {}", where, fields.columns,
                columns, kHeadsMax * kMambaStateDimMax);
  }
  JIGE_TRY(const int64_t expand, get_size_or(config, fields.expand, 2, where));
  if (expand <= kMambaExpandMax) return expand * out.hidden_size;
  return fail(Code::kCorrupt, "{}: {} ({}) makes no layer of Mamba 2", where, fields.expand,
              expand);
}

// "auto" is what the columns leave, or the usual.
Result<int64_t> parse_mamba_head_dim(const Json& config, const ModelConfig& out,
                                     std::string_view where) {
  const MambaFields fields = mamba_fields(out.family);
  if (!fields.by_width) {
    return get_int_or(config, fields.head_dim, fields.head_dim_default, where);
  }
  JIGE_TRY(const int64_t columns, parse_mamba_columns(config, out, where));
  const int64_t heads = out.mamba2.heads;
  if (heads < 1 || heads > kHeadsMax) {
    return fail(Code::kCorrupt, "{}: {} ({}) makes no layer of Mamba 2", where, fields.heads,
                heads);
  }
  const Json* given = find_field(config, fields.head_dim);
  const bool automatic = !given || (given->is_string() && *given == "auto");
  int64_t head_dim = fields.head_dim_default > 0 ? fields.head_dim_default : columns / heads;
  if (!automatic) {
    JIGE_TRY(head_dim, get_int(config, fields.head_dim, where));
  }
  if (head_dim < 1 || head_dim > kMambaStateDimMax || head_dim * heads != columns) {
    const std::string whole =
        fields.columns ? std::string(fields.columns)
                       : fmt::format("{} times {}", fields.expand, size_fields(out.family).hidden);
    return fail(Code::kCorrupt, "{}: {} ({}) of {} ({}) are not {} ({}) columns", where,
                fields.heads, heads, fields.head_dim, head_dim, whole, columns);
  }
  return head_dim;
}

}  // namespace

Status parse_mamba2(const Json& config, ModelConfig& out, std::string_view where) {
  const MambaFields fields = mamba_fields(out.family);
  Mamba2Config& mamba = out.mamba2;
  JIGE_TRY(mamba.heads, get_int_or(config, fields.heads, 128, where));
  JIGE_TRY(mamba.head_dim, parse_mamba_head_dim(config, out, where));
  JIGE_TRY(mamba.groups, get_int_or(config, fields.groups, fields.groups_default, where));
  JIGE_TRY(mamba.state_dim, get_int_or(config, fields.state_dim, fields.state_dim_default, where));
  JIGE_TRY(mamba.kernel, get_int_or(config, fields.kernel, 4, where));
  JIGE_TRY(mamba.conv_bias, get_bool_or(config, fields.conv_bias, true, where));
  JIGE_TRY(mamba.bias, get_bool_or(config, fields.bias, false, where));
  mamba.output_bias = mamba.bias;
  JIGE_DO(refuse_step_limits(config, where));
  if (out.family == Family::kMamba2) {
    set_recurrent_layers(std::vector<uint8_t>(static_cast<size_t>(out.layer_count), 1), out);
    return {};
  }
  if (out.family == Family::kNemotronH) return parse_recurrent_parts(config, out, where);
  if (out.family == Family::kFalconH1) {
    set_recurrent_layers(std::vector<uint8_t>(static_cast<size_t>(out.layer_count), 1), out);
    return parse_falcon_h1(config, out, where);
  }
  if (out.family == Family::kBamba) {
    JIGE_TRY(std::vector<uint8_t> flags,
             all_but_listed_layers(config, kMambaAttentionList, out.layer_count, where));
    set_recurrent_layers(std::move(flags), out);
    return {};
  }
  JIGE_TRY(const std::string positions, get_string_or(config, kPositions, "", where));
  if (positions != "rope") {
    if (!positions.empty() && positions != "nope") {
      return fail(Code::kUnsupported, "{}: {} \"{}\" is not supported; it must be rope or nope",
                  where, kPositions, positions.substr(0, 80));
    }
    out.layer_is_unturned.assign(static_cast<size_t>(out.layer_count), 1);
  }
  const std::vector<uint8_t> usual(static_cast<size_t>(out.layer_count), 1);
  return parse_recurrent_layers(config, {kUsualLayerTypes, kMambaLayerTypes}, usual, out, where);
}

void emit_mamba2(const ModelConfig& config, Json& out) {
  const MambaFields fields = mamba_fields(config.family);
  const Mamba2Config& mamba = config.mamba2;
  out[fields.heads] = mamba.heads;
  out[fields.head_dim] = mamba.head_dim;
  out[fields.groups] = mamba.groups;
  out[fields.state_dim] = mamba.state_dim;
  out[fields.kernel] = mamba.kernel;
  out[fields.conv_bias] = mamba.conv_bias;
  out[fields.bias] = mamba.bias;
  if (config.family == Family::kNemotronH) {
    out[kStepMin] = kStepMinWritten;
    return;
  }
  if (config.family == Family::kFalconH1) {
    out[fields.columns] = mamba.value_columns();
    return emit_falcon_h1(config, out);
  }
  out[fields.expand] = mamba.value_columns() / config.hidden_size;
  if (config.family == Family::kMamba2) return;
  if (config.family == Family::kBamba) {
    Json attention = Json::array();
    for (int64_t i = 0; i < config.layer_count; ++i) {
      if (!is_recurrent(config, i)) attention.push_back(i);
    }
    out[kMambaAttentionList] = std::move(attention);
    return;
  }
  out[kPositions] = config.layer_is_unturned.empty() ? Json("rope") : Json();
  emit_recurrent_layers(config, kMambaLayerTypes, out);
}

Status check_mamba2(const ModelConfig& config, std::string_view where) {
  const MambaFields fields = mamba_fields(config.family);
  const Mamba2Config& mamba = config.mamba2;
  const auto in_range = [&](const char* field, int64_t value, int64_t high) -> Status {
    if (value >= 1 && value <= high) return {};
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                field, value, high);
  };
  JIGE_DO(in_range(fields.heads, mamba.heads, kHeadsMax));
  JIGE_DO(in_range(fields.head_dim, mamba.head_dim, kMambaStateDimMax));
  JIGE_DO(in_range(fields.groups, mamba.groups, kHeadsMax));
  JIGE_DO(in_range(fields.state_dim, mamba.state_dim, kMambaStateDimMax));
  JIGE_DO(in_range(fields.kernel, mamba.kernel, kConvolutionMax));
  if (mamba.heads % mamba.groups != 0) {
    return fail(Code::kInvalidArgument, "{}: {} ({}) does not divide {} ({})", where, fields.groups,
                mamba.groups, fields.heads, mamba.heads);
  }
  if (config.attention_beside && recurrent_layer_count(config) < config.layer_count) {
    return fail(Code::kInvalidArgument, "{}: {} models have such a part in every layer", where,
                family_name(config.family));
  }
  const bool by_width = fields.by_width && !fields.columns;
  if (by_width && mamba.value_columns() % config.hidden_size != 0) {
    return fail(Code::kInvalidArgument, "{}: {} ({}) times {} ({}) is no multiple of {} ({})",
                where, fields.heads, mamba.heads, fields.head_dim, mamba.head_dim,
                size_fields(config.family).hidden, config.hidden_size);
  }
  return {};
}

int64_t mamba2_parameter_count(const ModelConfig& config) {
  const Mamba2Config& mamba = config.mamba2;
  const int64_t values = mamba.value_columns();
  const int64_t inputs = values + mamba.conv_columns() + mamba.heads;
  const int64_t biases = (mamba.bias ? inputs : 0) + (mamba.output_bias ? config.hidden_size : 0) +
                         (mamba.conv_bias ? mamba.conv_columns() : 0);
  return config.hidden_size * (inputs + values) + mamba.conv_columns() * mamba.kernel + biases +
         3 * mamba.heads + (mamba.norm == GatedNorm::kNone ? 0 : values);
}

}  // namespace jige::formats
