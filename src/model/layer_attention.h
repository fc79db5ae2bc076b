// What a layer has for its attention part: the form of attention that its model and its place call
// for, or two of them side by side, and the product behind it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/attention.h"
#include "model/layer_names.h"
#include "model/projection.h"

namespace jige::model {

struct LayerOptions {
  int64_t index = 0;
  LayerNames names;
  bool transposed = false;     // files hold matrices as [in, out]
  double activated_scale = 1;  // what the feed-forward's second product reads is multiplied with it
  // In place of norms behind the parts, numbers of each column that these are multiplied with; for
  // inference alone.
  bool column_scales = false;
  // Files hold heads as two halves, each a head that turns by itself: its first half of columns by
  // the second. Here the first halves of both stand in front, those of the second half first.
  bool halves_apart = false;
  bool bounded = false;  // products are (ProjectionOptions::bounded)
  std::optional<formats::LoraConfig> lora;
  DeviceKind device = DeviceKind::kCpu;
};

// Appends the parameters. `residual_std` is where products that end in the residual stream begin.
// REQUIRES: the layer has an attention part.
std::unique_ptr<Attention> make_attention(const formats::ModelConfig& config,
                                          const LayerOptions& options, double residual_std,
                                          std::vector<ParamSpec>& params);

// The product that ends in the residual stream, of so many columns; none where attention has its
// own. Appends the parameters.
std::optional<Projection> make_attention_output(const formats::ModelConfig& config,
                                                const LayerOptions& options,
                                                const Attention& attention, double residual_std,
                                                std::vector<ParamSpec>& params);

}  // namespace jige::model
