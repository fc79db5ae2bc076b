#include "formats/model_config_mamba1.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_jamba.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kScanStateMax = 256;
constexpr int64_t kScanExpandMax = 64;
constexpr int64_t kScanRankMax = int64_t{1} << 14;
constexpr const char* kMixerEps = "mixer_rms_eps";

struct ScanFields {
  const char* expand = "expand";
  const char* state_dim = "state_size";
  const char* kernel = "conv_kernel";
  const char* rank = "time_step_rank";
  const char* conv_bias = "use_conv_bias";
  const char* bias = "use_bias";
};

ScanFields scan_fields(Family family) {
  if (family != Family::kJamba) return {};
  return {.expand = "mamba_expand",
          .state_dim = "mamba_d_state",
          .kernel = "mamba_d_conv",
          .rank = "mamba_dt_rank",
          .conv_bias = "mamba_conv_bias",
          .bias = "mamba_proj_bias"};
}

// "auto" is a sixteenth of the width.
Result<int64_t> parse_step_rank(const Json& config, const ModelConfig& out,
                                std::string_view where) {
  const char* field = scan_fields(out.family).rank;
  const Json* given = find_field(config, field);
  const bool automatic = !given || (given->is_string() && *given == "auto");
  return automatic ? (out.hidden_size + 15) / 16 : get_int(config, field, where);
}

}  // namespace

Status parse_mamba1(const Json& config, ModelConfig& out, std::string_view where) {
  const ScanFields fields = scan_fields(out.family);
  Mamba1Config& mamba = out.mamba1;
  JIGE_TRY(const int64_t expand, get_size_or(config, fields.expand, 2, where));
  if (expand > kScanExpandMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                fields.expand, expand, kScanExpandMax);
  }
  mamba.columns = expand * out.hidden_size;
  JIGE_TRY(mamba.state_dim, get_int_or(config, fields.state_dim, 16, where));
  JIGE_TRY(mamba.kernel, get_int_or(config, fields.kernel, 4, where));
  JIGE_TRY(mamba.step_rank, parse_step_rank(config, out, where));
  JIGE_TRY(mamba.conv_bias, get_bool_or(config, fields.conv_bias, true, where));
  JIGE_TRY(mamba.bias, get_bool_or(config, fields.bias, false, where));
  mamba.norms = family_info(out.family).step_norms;
  if (mamba.norms == StepNorms::kPlain) {
    JIGE_TRY(mamba.norm_eps, get_number_or(config, kMixerEps, 1e-6, where));
  }
  if (out.family == Family::kJamba) return parse_jamba_layers(config, out, where);
  set_recurrent_layers(std::vector<uint8_t>(static_cast<size_t>(out.layer_count), 1), out);
  return {};
}

void emit_mamba1(const ModelConfig& config, Json& out) {
  const ScanFields fields = scan_fields(config.family);
  const Mamba1Config& mamba = config.mamba1;
  out[fields.expand] = mamba.columns / config.hidden_size;
  out[fields.state_dim] = mamba.state_dim;
  out[fields.kernel] = mamba.kernel;
  out[fields.rank] = mamba.step_rank;
  out[fields.conv_bias] = mamba.conv_bias;
  out[fields.bias] = mamba.bias;
  if (mamba.norms == StepNorms::kPlain) out[kMixerEps] = mamba.norm_eps;
  if (config.family == Family::kJamba) emit_jamba_layers(config, out);
}

Status check_mamba1(const ModelConfig& config, std::string_view where) {
  const ScanFields fields = scan_fields(config.family);
  const Mamba1Config& mamba = config.mamba1;
  const auto in_range = [&](const char* field, int64_t value, int64_t high) -> Status {
    if (value >= 1 && value <= high) return {};
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                field, value, high);
  };
  if (mamba.columns < 1 || mamba.columns % config.hidden_size != 0) {
    return fail(Code::kInvalidArgument, "{}: {} channels are no multiple of {} ({})", where,
                mamba.columns, size_fields(config.family).hidden, config.hidden_size);
  }
  JIGE_DO(in_range(fields.expand, mamba.columns / config.hidden_size, kScanExpandMax));
  JIGE_DO(in_range(fields.state_dim, mamba.state_dim, kScanStateMax));
  JIGE_DO(in_range(fields.kernel, mamba.kernel, kConvolutionMax));
  JIGE_DO(in_range(fields.rank, mamba.step_rank, kScanRankMax));
  const FamilyInfo& family = family_info(config.family);
  if (mamba.norms != family.step_norms) {
    return fail(Code::kInvalidArgument, "{}: {} models have other norms of steps, B and C", where,
                family_name(config.family));
  }
  if (config.family == Family::kJamba) JIGE_DO(check_jamba_layers(config, where));
  const bool plain = mamba.norms == StepNorms::kPlain;
  if (plain ? !(mamba.norm_eps >= 1e-30 && mamba.norm_eps <= 1) : mamba.norm_eps != 0) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1e-30, 1]", where,
                kMixerEps, mamba.norm_eps);
  }
  return {};
}

int64_t mamba1_parameter_count(const ModelConfig& config) {
  const Mamba1Config& mamba = config.mamba1;
  const int64_t parts = mamba.step_rank + 2 * mamba.state_dim;
  const int64_t biases = (mamba.bias ? 2 * mamba.columns + config.hidden_size : 0) +
                         (mamba.conv_bias ? mamba.columns : 0);
  const int64_t norms = mamba.norms == StepNorms::kWeighted ? parts : 0;
  // Of a channel: a row of three products and of t, its convolution, scales, bias and skip.
  const int64_t of_channel =
      3 * config.hidden_size + parts + mamba.step_rank + mamba.kernel + mamba.state_dim + 2;
  return mamba.columns * of_channel + biases + norms;
}

}  // namespace jige::formats
