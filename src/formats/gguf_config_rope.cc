#include "formats/gguf_config_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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
constexpr const char* kFactorsTensor = "rope_freqs.weight";
// Of models with latents the key is a tenth of mscale_all_dim, as an f32.
constexpr double kLatentMultiplier = 0.1;
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
                  {"rope.scaling.yarn_attn_factor", 1},
                  {kLogMultiplierKey, 0},
                  {"rope.scaling.yarn_beta_fast", 32},
                  {"rope.scaling.yarn_beta_slow", 1}};
    for (const auto& other : others) {
      JIGE_TRY(const auto value, keys_.find_number(key(other.name)));
      if (value.value_or(other.usual) == other.usual || is_own(other.name, *value)) continue;
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

  // Of Ministral 3 a multiplier of 1 says that cosines and sines are not scaled.
  bool is_own(std::string_view name, double value) const {
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
        std::round(*multiplier / kLatentMultiplier * kMultiplierDigits) / kMultiplierDigits;
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
