#include "model/attention.h"

#include <cmath>

namespace jige::model {

CacheShape cache_shape(const formats::ModelConfig& config, int64_t layer) {
  if (config.latent.rank > 0) return {1, config.latent.rank + config.rotary_dim};
  const formats::HeadShape heads = formats::head_shape(config, layer);
  return {heads.kv_head_count, heads.head_dim};
}

bool has_cache(const formats::ModelConfig& config, int64_t layer) {
  return !config.looks_ahead && formats::has_attention(config, layer) &&
         !formats::shares_keys(config, layer);
}

int64_t cache_bytes(const formats::ModelConfig& config, int64_t layer, DType dtype,
                    int64_t block_count) {
  if (!has_cache(config, layer)) return 0;
  const CacheShape shape = cache_shape(config, layer);
  return ops::kv_cache_bytes(dtype, block_count, shape.kv_head_count, shape.head_dim);
}

StateShape state_shape(const formats::ModelConfig& config) {
  if (formats::recurrent_layer_count(config) == 0) return {};  // nobody has checked its fields
  if (config.short_conv.kernel > 0) {
    return {.inputs = (config.short_conv.kernel - 1) * config.hidden_size};
  }
  const formats::Mamba1Config& scanned = config.mamba1;
  if (scanned.columns > 0) {
    return {.inputs = (scanned.kernel - 1) * scanned.columns,
            .matrices = scanned.columns * scanned.state_dim};
  }
  const formats::Mamba2Config& mamba = config.mamba2;
  if (mamba.heads > 0) {
    return {.inputs = (mamba.kernel - 1) * mamba.conv_columns(),
            .matrices = mamba.value_columns() * mamba.state_dim};
  }
  const formats::DeltaConfig& delta = config.delta;
  return {.inputs = (delta.kernel - 1) * delta.conv_columns(),
          .matrices = delta.value_columns() * delta.key_dim};
}

double score_scale(const formats::ModelConfig& config, int64_t layer) {
  if (config.score_scale > 0) return config.score_scale;
  const double dim = config.score_dim > 0 ? config.score_dim : static_cast<double>(config.head_dim);
  const formats::DistanceRowsConfig& rows = config.distance_rows;
  const double products = 1.0 + (rows.for_queries ? 1.0 : 0.0) + (rows.for_keys ? 1.0 : 0.0);
  double scale = config.scores_by_head_dim ? 1.0 / std::sqrt(dim * products) : 1.0;
  if (config.rope.mscale_all > 0 && config.rope.factor > 1) {
    const double magnitude = 1.0 + 0.1 * config.rope.mscale_all * std::log(config.rope.factor);
    scale *= magnitude * magnitude;
  }
  return config.scores_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

}  // namespace jige::model
