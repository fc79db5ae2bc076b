#include "formats/model_config_minicpm.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/model_config_fields.h"

namespace jige::formats {
namespace {

// What divided by `divisor` gives `quotient` again.
double dividend_of(double quotient, double divisor) {
  const double product = quotient * divisor;
  for (const double near :
       {product, std::nextafter(product, 0.0), std::nextafter(product, 1e300)}) {
    if (near / divisor == quotient) return near;
  }
  return product;
}

}  // namespace

Status parse_minicpm_scales(const Json& config, ModelConfig& out, std::string_view where) {
  // MiniCPM3 alone has usual ones, those of its class in transformers.
  for (const char* field : {"scale_emb", "scale_depth", "dim_model_base"}) {
    if (out.family == Family::kMiniCpm3 || find_field(config, field)) continue;
    return fail(Code::kNotFound, "{}: field \"{}\" is missing", where, field);
  }
  const auto depth = std::sqrt(static_cast<double>(std::max<int64_t>(out.layer_count, 1)));
  const bool unscaled = present(config, "scale_depth") && !find_field(config, "scale_depth");
  JIGE_TRY(out.embedding_scale, get_number_or(config, "scale_emb", 12.0, where));
  JIGE_TRY(out.residual_scale, get_number_or(config, "scale_depth", unscaled ? depth : 1.4, where));
  out.residual_scale /= depth;
  const int64_t usual_base = present(config, "dim_model_base") ? out.hidden_size : 256;
  JIGE_TRY(const int64_t base, get_size_or(config, "dim_model_base", usual_base, where));
  out.logits_divisor = static_cast<double>(out.hidden_size) / static_cast<double>(base);
  return {};
}

void emit_minicpm(const ModelConfig& config, Json& out) {
  out["scale_emb"] = number_or_whole(config.embedding_scale);
  out["scale_depth"] =
      dividend_of(config.residual_scale, std::sqrt(static_cast<double>(config.layer_count)));
  out["dim_model_base"] =
      std::llround(static_cast<double>(config.hidden_size) / config.logits_divisor);
}

}  // namespace jige::formats
