#include "formats/gguf_config_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf_config.h"
#include "formats/model_config_rope.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr double kFactorTolerance = 1e-4;
constexpr const char* kLogMultiplierKey = "rope.scaling.yarn_log_multiplier";
constexpr const char* kYarnFactorKey = "rope.scaling.yarn_attn_factor";
constexpr const char* kFactorsTensor = "rope_freqs.weight";
constexpr const char* kLongFactorsTensor = "rope_factors_long.weight";
constexpr const char* kShortFactorsTensor = "rope_factors_short.weight";
// Of an attention factor that a key has as an f32.
constexpr double kAttentionFactorTolerance = 1e-6;
// As an f32.
constexpr double kMultiplierDigits = 1e6;

class GgufRopeReader {
 public:
  GgufRopeReader(const GgufFile& file, const std::string& prefix, ModelConfig& out)
      : file_(file), keys_(file.metadata()), prefix_(prefix), out_(out) {}

  Status run() {
    JIGE_TRY(const auto theta, keys_.find_number(key("rope.freq_base")));
    out_.rope = RopeConfig{.theta = theta.value_or(10000.0)};
    JIGE_TRY(const auto type, keys_.find_text(key("rope.scaling.type")));
    JIGE_TRY(auto factor, keys_.find_number(key("rope.scaling.factor")));
    if (!factor) {
      JIGE_TRY(factor, keys_.find_number(key("rope.scale_linear")));
    }
    const std::string_view kind = type.value_or(factor.value_or(1.0) == 1.0 ? "none" : "linear");
    if (kind != "none" && kind != "linear" && kind != "yarn") {
      return fail(Code::kUnsupported,
                  "{}: key \"{}\" is \"{}\"; Jige reads none, linear, yarn, and llama3 by its "
                  "factors",
                  keys_.where(), key("rope.scaling.type"), gguf_shown(kind));
    }
    if (kind == "linear" && factor.value_or(1.0) != 1.0) {
      out_.rope.scaling = RopeScaling::kLinear;
      out_.rope.factor = *factor;
    }
    if (kind == "yarn") JIGE_DO(read_yarn(factor));
    if (out_.sliding_rope == out_.rope) out_.sliding_rope.reset();
    const GgufTensor* factors = file_.header().find(kFactorsTensor);
    return factors ? read_factors(*factors) : Status();
  }

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  Status read_yarn(const std::optional<double>& factor) {
    JIGE_TRY(const int64_t context, keys_.get_int(key("rope.scaling.original_context_length")));
    if (!factor) {
      return fail(Code::kCorrupt, "{}: key \"{}\" is missing", keys_.where(),
                  key("rope.scaling.factor"));
    }
    const struct {
      const char* name;
      double usual;
    } others[] = {{"rope.scaling.attn_factor", 1},
                  {kYarnFactorKey, 1},
                  {kLogMultiplierKey, 0},
                  {"rope.scaling.yarn_beta_fast", 32},
                  {"rope.scaling.yarn_beta_slow", 1}};
    for (const auto& other : others) {
      JIGE_TRY(const auto value, keys_.find_number(key(other.name)));
      if (value.value_or(other.usual) == other.usual || is_own(other.name, *value, *factor))
        continue;
      return fail(Code::kUnsupported, "{}: key \"{}\" is {}; Jige reads yarn where it is {}",
                  keys_.where(), key(other.name), *value, other.usual);
    }
    out_.rope.factor = *factor;
    out_.rope.original_context = context;
    out_.rope = gguf_yarn(out_.rope);
    if (out_.family == Family::kGptOss) return read_bounds();
    if (out_.latent.rank > 0) return read_latent_scale();
    return out_.family == Family::kMinistral3 ? read_query_growth() : Status();
  }

  // Of Ministral 3 a multiplier of 1 says that cosines and sines are not scaled. Writers may say
  // what the scaling has them multiplied with; readers take it for granted.
  bool is_own(std::string_view name, double value, double factor) const {
    if (name == kYarnFactorKey) {
      return std::abs(value - yarn_attention_factor(factor)) <= kAttentionFactorTolerance;
    }
    if (out_.family == Family::kGptOss) return name.ends_with("_fast") || name.ends_with("_slow");
    if (name != kLogMultiplierKey) return false;
    return out_.latent.rank > 0 || (out_.family == Family::kMinistral3 && value == 1.0);
  }

  // The pairs between which the scaling sets in are not rounded to whole ones.
  Status read_bounds() {
    out_.rope.truncate = false;
    JIGE_TRY(const auto fast, keys_.find_number(key("rope.scaling.yarn_beta_fast")));
    JIGE_TRY(const auto slow, keys_.find_number(key("rope.scaling.yarn_beta_slow")));
    out_.rope.beta_fast = fast.value_or(out_.rope.beta_fast);
    out_.rope.beta_slow = slow.value_or(out_.rope.beta_slow);
    return {};
  }

  // Readers scale scores and not cosines and sines, as of models whose mscale is mscale_all_dim.
  Status read_latent_scale() {
    JIGE_TRY(const auto multiplier, keys_.find_number(key(kLogMultiplierKey)));
    if (!multiplier || *multiplier == 0.0) return {};
    const double scale =
        std::round(*multiplier / kGgufLatentMultiplier * kMultiplierDigits) / kMultiplierDigits;
    out_.rope.mscale = out_.rope.mscale_all = scale;
    out_.rope.attention_factor = 1.0;
    return {};
  }

  Status read_query_growth() {
    JIGE_TRY(const auto multiplier, keys_.find_number(key(kLogMultiplierKey)));
    if (multiplier.value_or(0.0) == 1.0) out_.rope.attention_factor = 1.0;
    JIGE_TRY(const auto growth, keys_.find_number(key("attention.temperature_scale")));
    out_.rope.query_growth = growth.value_or(0.0);
    const int64_t context = out_.rope.original_context;
    JIGE_TRY(const auto length, keys_.find_int(key("attention.temperature_length")));
    if (length.value_or(context) == context) return {};
    return fail(Code::kUnsupported,
                "{}: key \"{}\" is {} and the original context {}; Jige computes models where both "
                "are one",
                keys_.where(), key("attention.temperature_length"), *length, context);
  }

  Status read_factors(const GgufTensor& tensor) {
    JIGE_TRY(const std::vector<float> factors, gguf_rope_divisors(file_, out_.head_dim));
    if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1.0f; })) return {};
    const auto found = find_llama3_scaling(factors, out_.rope.theta);
    if (!found || out_.rope.scaling != RopeScaling::kNone) {
      return fail(Code::kUnsupported,
                  "{}: tensor \"{}\" scales rotary frequencies by other factors than llama3 with "
                  "low_freq_factor 1 and high_freq_factor 4, which Jige does not compute",
                  keys_.where(), tensor.name);
    }
    out_.rope = *found;
    return {};
  }

  const GgufFile& file_;
  const GgufMetadata& keys_;
  const std::string& prefix_;
  ModelConfig& out_;
};

Result<Json> longrope_factors(const GgufFile& file, const char* name, int64_t count) {
  const GgufTensor* tensor = file.header().find(name);
  if (!tensor) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" is missing", file.metadata().where(), name);
  }
  if (tensor->type->number != kGgufF32 || tensor->dims.size() != 1 || tensor->columns() != count) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" is {} {}; it must be F32 [{}]",
                file.metadata().where(), name, tensor->type->name, tensor->shape_text(), count);
  }
  std::vector<float> values(static_cast<size_t>(count));
  std::memcpy(values.data(), file.data(*tensor), tensor->bytes);
  Json list = Json::array();
  for (const float value : values) list.push_back(GgufMetadata::shortest_decimal(value));
  return list;
}

}  // namespace

Status read_gguf_rope(const GgufFile& file, const std::string& prefix, ModelConfig& out) {
  return GgufRopeReader(file, prefix, out).run();
}

Result<std::vector<float>> gguf_rope_divisors(const GgufFile& file, int64_t head_dim) {
  const GgufTensor* tensor = file.header().find(kFactorsTensor);
  if (!tensor) return std::vector<float>();
  if (tensor->type->number != kGgufF32 || tensor->dims.size() != 1 ||
      tensor->columns() != head_dim / 2) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" is {} {}; it must be F32 [{}]",
                file.metadata().where(), tensor->name, tensor->type->name, tensor->shape_text(),
                head_dim / 2);
  }
  std::vector<float> divisors(static_cast<size_t>(tensor->columns()));
  std::memcpy(divisors.data(), file.data(*tensor), tensor->bytes);
  return divisors;
}

bool is_gguf_longrope_tensor(std::string_view name) {
  return name == kLongFactorsTensor || name == kShortFactorsTensor;
}

Result<Json> read_gguf_longrope(const GgufFile& file, const std::string& prefix, int64_t turned,
                                int64_t context) {
  const GgufMetadata& keys = file.metadata();
  JIGE_TRY(const auto theta, keys.find_number(prefix + "rope.freq_base"));
  JIGE_TRY(const auto type, keys.find_text(prefix + "rope.scaling.type"));
  JIGE_TRY(const auto scale, keys.find_number(prefix + "rope.scaling.factor"));
  if ((type && *type != "none" && *type != "longrope") || scale.value_or(1.0) != 1.0) {
    return fail(Code::kUnsupported,
                "{}: keys \"{}rope.scaling\" say {} by {}; Jige reads such models with none and "
                "with longrope, by its factors",
                keys.where(), prefix, gguf_shown(type.value_or("none")), scale.value_or(1.0));
  }
  const std::string original_key = prefix + "rope.scaling.original_context_length";
  JIGE_TRY(const auto stated, keys.find_int(original_key));
  Json rope = {{"rope_type", "default"}, {"rope_theta", theta.value_or(10000.0)}};
  const GgufHeader& header = file.header();
  if (!header.find(kLongFactorsTensor) && !header.find(kShortFactorsTensor)) return rope;
  const int64_t original = stated.value_or(context);
  if (original < 2) {
    return fail(Code::kCorrupt, "{}: key \"{}\" is {}; it must be 2 or more", keys.where(),
                original_key, original);
  }
  rope["rope_type"] = "longrope";
  rope["original_max_position_embeddings"] = original;
  JIGE_TRY(rope["long_factor"], longrope_factors(file, kLongFactorsTensor, turned / 2));
  JIGE_TRY(rope["short_factor"], longrope_factors(file, kShortFactorsTensor, turned / 2));
  JIGE_TRY(const auto attention, keys.find_number(prefix + "rope.scaling.attn_factor"));
  const double usual = default_attention_factor(
      static_cast<double>(context) / static_cast<double>(original), original);
  const double factor = attention.value_or(1.0);
  if (!(std::abs(factor - usual) <= kAttentionFactorTolerance)) rope["attention_factor"] = factor;
  return rope;
}

RopeConfig gguf_yarn(const RopeConfig& rope) {
  return {.theta = rope.theta,
          .scaling = RopeScaling::kYarn,
          .factor = rope.factor,
          .original_context = rope.original_context,
          .attention_factor = yarn_attention_factor(rope.factor)};
}

double llama3_divisor(double wavelength, const RopeConfig& rope) {
  const auto context = static_cast<double>(rope.original_context);
  if (wavelength < context / rope.high_freq_factor) return 1.0;
  if (wavelength > context / rope.low_freq_factor) return rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return 1.0 / ((1.0 - smooth) / rope.factor + smooth);
}

std::optional<RopeConfig> find_llama3_scaling(std::span<const float> factors, double theta) {
  double largest = *std::max_element(factors.begin(), factors.end());
  if (!(largest > 1.0 && largest <= 1e6)) return std::nullopt;
  // Factors are whole numbers, but for the rounding of quotients of f32.
  if (std::abs(largest - std::round(largest)) <= kFactorTolerance) largest = std::round(largest);
  const auto count = static_cast<double>(factors.size());
  const auto fits = [&](const RopeConfig& rope) {
    for (size_t i = 0; i < factors.size(); ++i) {
      const double wavelength =
          2.0 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / count);
      const double expected = llama3_divisor(wavelength, rope);
      if (!(std::abs(factors[i] - expected) <= kFactorTolerance * expected)) return false;
    }
    return true;
  };
  // 8192 is what Meta's models were trained with; another length that fits as well divides every
  // frequency of this model by the same.
  std::vector<int64_t> contexts = {8192};
  for (int64_t length = 16; length <= (int64_t{1} << 22); length *= 2) contexts.push_back(length);
  for (const int64_t context : contexts) {
    const RopeConfig rope{.theta = theta,
                          .scaling = RopeScaling::kLlama3,
                          .factor = largest,
                          .low_freq_factor = 1.0,
                          .high_freq_factor = 4.0,
                          .original_context = context};
    if (fits(rope)) return rope;
  }
  return std::nullopt;
}

}  // namespace jige::formats
