// NormLayer: an RMSNorm or LayerNorm with its parameters, as blocks use it.
//
// Shapes: T tokens, G groups of D columns; G is 1, or the head count for norms of heads.
// The normalised rows are recomputed where a backward needs them; only the statistics are kept.
// Threads: const.
#pragma once

#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/placement.h"

namespace jige::model {

// What a backward needs from forward: 1/std and, for LayerNorm, the mean of each group.
struct NormStats {
  TensorView rstd;  // [T, G] f32
  TensorView mean;  // [T, G] f32, LayerNorm only
};

class NormLayer {
 public:
  NormLayer() = default;
  // Appends "<prefix>.weight" and, for LayerNorm, "<prefix>.bias" to `params`.
  NormLayer(const formats::ModelConfig& config, const std::string& prefix, int64_t columns,
            std::vector<ParamSpec>& params);

  NormStats place_stats(Placement& at, int64_t token_count, int64_t groups = 1) const;

  // `stats` may be empty views: nothing is kept then.
  void forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
               const TensorView& src, const NormStats& stats) const;
  // grad_src = or, with accumulate, += the input gradient.
  void backward_input(Stream& stream, const BlockWeights& weights, const TensorView& grad_src,
                      const TensorView& grad_dst, const TensorView& src, const NormStats& stats,
                      bool accumulate) const;
  // Does nothing for a frozen norm.
  void backward_weight(Stream& stream, const BlockWeights& weights, const TensorView& grad_dst,
                       const TensorView& src, const NormStats& stats) const;

 private:
  bool is_layer_norm() const { return kind_ == formats::NormKind::kLayer; }
  TensorView bias(const BlockWeights& weights) const;

  formats::NormKind kind_ = formats::NormKind::kRms;
  double eps_ = 0;
  bool adds_one_ = false;
  size_t weight_index_ = 0;  // the bias follows
};

}  // namespace jige::model
