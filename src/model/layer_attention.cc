#include "model/layer_attention.h"

#include <string>
#include <utility>

#include "model/delta_attention.h"
#include "model/grouped_attention.h"
#include "model/kimi_delta.h"
#include "model/latent_attention.h"
#include "model/mamba1.h"
#include "model/mamba2.h"
#include "model/parallel_attention.h"
#include "model/short_conv.h"

namespace jige::model {
namespace {

std::unique_ptr<Attention> make_recurrent(const formats::ModelConfig& config,
                                          const LayerOptions& options,
                                          std::vector<ParamSpec>& params) {
  const LayerNames& names = options.names;
  const DeviceKind device = options.device;
  if (config.short_conv.kernel > 0) {
    return std::make_unique<ShortConv>(config, names.short_conv, options.lora, device, params);
  }
  if (config.mamba1.columns > 0) {
    return std::make_unique<Mamba1>(config, names.mamba1, options.lora, device, params);
  }
  if (config.mamba2.heads > 0) {
    return std::make_unique<Mamba2>(config, names.mamba2, options.lora, device, params);
  }
  if (config.delta.by_key) {
    return std::make_unique<KimiDelta>(config, names.kimi_delta, options.lora, device, params);
  }
  return std::make_unique<DeltaAttention>(config, names.delta, options.lora, device, params);
}

std::unique_ptr<Attention> make_heads(const formats::ModelConfig& config,
                                      const LayerOptions& options, std::vector<ParamSpec>& params) {
  if (config.latent.rank > 0) {
    return std::make_unique<LatentAttention>(config, options.names.latent, options.index,
                                             options.lora, options.device, params);
  }
  return std::make_unique<GroupedAttention>(
      config, options.names.attention,
      GroupedAttentionOptions{.layer = options.index,
                              .transposed = options.transposed,
                              .halves_apart = options.halves_apart,
                              .bounded = options.bounded,
                              .lora = options.lora,
                              .device = options.device},
      params);
}

struct OutputOptions {
  std::string name;
  bool bias = false;
  bool recurrent = false;
  double scale = 1;
};

Projection make_output(const formats::ModelConfig& config, const LayerOptions& options,
                       const Attention& attention, double residual_std, const OutputOptions& output,
                       std::vector<ParamSpec>& params) {
  const bool adapted = !output.recurrent || formats::adapts_recurrent_output(config.family);
  return Projection({.parts = {{output.name, config.hidden_size}},
                     .inputs = attention.columns(),
                     .bias = output.bias,
                     .transposed = options.transposed,
                     .scales = {{config.hidden_size, output.scale}},
                     .bounded = options.bounded,
                     .init_std = residual_std,
                     .lora = adapted ? options.lora : std::nullopt,
                     .device = options.device},
                    params);
}

// On the product behind what stands in the place of attention, or beside it.
bool has_recurrent_bias(const formats::ModelConfig& config) {
  return config.mamba2.heads > 0 ? config.mamba2.output_bias
                                 : config.mamba1.bias || config.short_conv.bias;
}

}  // namespace

std::unique_ptr<Attention> make_attention(const formats::ModelConfig& config,
                                          const LayerOptions& options, double residual_std,
                                          std::vector<ParamSpec>& params) {
  if (!formats::is_recurrent(config, options.index)) return make_heads(config, options, params);
  if (!config.attention_beside) return make_recurrent(config, options, params);
  ParallelAttention::Side heads{.attention = make_heads(config, options, params), .output = {}};
  heads.output = make_output(config, options, *heads.attention, residual_std,
                             {.name = options.names.attention_output,
                              .bias = config.output_bias,
                              .scale = config.attention_out_scale},
                             params);
  ParallelAttention::Side recurrent{.attention = make_recurrent(config, options, params),
                                    .output = {}};
  recurrent.output = make_output(config, options, *recurrent.attention, residual_std,
                                 {.name = options.names.recurrent_output,
                                  .bias = has_recurrent_bias(config),
                                  .recurrent = true,
                                  .scale = config.mamba2.out_scale},
                                 params);
  return std::make_unique<ParallelAttention>(std::move(heads), std::move(recurrent));
}

std::optional<Projection> make_attention_output(const formats::ModelConfig& config,
                                                const LayerOptions& options,
                                                const Attention& attention, double residual_std,
                                                std::vector<ParamSpec>& params) {
  if (attention.has_output()) return std::nullopt;
  const bool recurrent = formats::is_recurrent(config, options.index);
  return make_output(config, options, attention, residual_std,
                     {.name = options.names.attention_output,
                      .bias = recurrent ? has_recurrent_bias(config) : config.output_bias,
                      .recurrent = recurrent},
                     params);
}

}  // namespace jige::model
