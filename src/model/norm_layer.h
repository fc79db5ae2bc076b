// NormLayer: an RMSNorm or LayerNorm with its parameters, as blocks use it. HeadNormLayer: the
// norms of a layer's query heads, or of its key heads. GroupNormLayer: an RMSNorm of each of some
// groups of columns, with weights of its own.
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
#include "ops/norm.h"

namespace jige::model {

// What a backward needs from forward: 1/std and, for LayerNorm, the mean of each group.
struct NormStats {
  TensorView rstd;  // [T, G] f32
  TensorView mean;  // [T, G] f32, LayerNorm only
};

class NormLayer {
 public:
  NormLayer() = default;
  // Appends "<prefix>.weight" and, for LayerNorm with a bias, "<prefix>.bias" to `params`; without
  // a prefix, or in models whose norms have none, the norm has no weight.
  NormLayer(const formats::ModelConfig& config, const std::string& prefix, int64_t columns,
            bool bias, std::vector<ParamSpec>& params);

  // No norm: forward multiplies each column with a number, the parameter of this whole name. For
  // inference alone.
  static NormLayer of_scales(const std::string& name, int64_t columns,
                             std::vector<ParamSpec>& params);

  NormStats place_stats(Placement& at, int64_t token_count, int64_t groups = 1) const;

  // What forward() does, and whether it is an RMSNorm.
  ops::NormForward task(const BlockWeights& weights, const TensorView& dst, const TensorView& src,
                        const NormStats& stats) const;
  bool is_rms() const { return !is_layer_norm(); }
  // Whether it was made for any columns: layers leave out some norms.
  bool exists() const { return columns_ > 0; }
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
  TensorView weight(const BlockWeights& weights) const;
  TensorView bias(const BlockWeights& weights) const;

  formats::NormKind kind_ = formats::NormKind::kRms;
  double eps_ = 0;
  bool adds_one_ = false;
  bool has_weight_ = true;
  bool has_bias_ = false;
  bool scales_only_ = false;
  int64_t columns_ = 0;
  size_t weight_index_ = 0;  // the bias follows
};

// One norm that all heads go through, one of all heads as a row, or one for each head; without
// biases. Threads: const.
class HeadNormLayer {
 public:
  HeadNormLayer() = default;
  // Appends "<prefix>.weight", or for heads with weights of their own "<prefix>.<head>.weight";
  // where `stacked`, files hold those in a tensor "<prefix>.weight" [heads, D].
  HeadNormLayer(const formats::ModelConfig& config, const std::string& prefix, int64_t heads,
                int64_t head_dim, bool stacked, std::vector<ParamSpec>& params);

  NormStats place_stats(Placement& at, int64_t token_count) const;

  // As NormLayer's; rows of all heads.
  void forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
               const TensorView& src, const NormStats& stats) const;
  void backward_input(Stream& stream, const BlockWeights& weights, const TensorView& grad_src,
                      const TensorView& grad_dst, const TensorView& src,
                      const NormStats& stats) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, const TensorView& grad_dst,
                       const TensorView& src, const NormStats& stats) const;

 private:
  // The part of rows or statistics that the i-th norm has.
  TensorView part(const TensorView& rows, size_t i) const;
  NormStats part(const NormStats& stats, size_t i) const;

  std::vector<NormLayer> norms_;
  int64_t groups_ = 0;  // of all norms
};

// Threads: const.
class GroupNormLayer {
 public:
  GroupNormLayer() = default;
  // Appends "<prefix>.weight" [columns]. REQUIRES: groups divides columns.
  GroupNormLayer(double eps, const std::string& prefix, int64_t columns, int64_t groups,
                 std::vector<ParamSpec>& params);

  NormStats place_stats(Placement& at, int64_t token_count) const;

  // As NormLayer's; rows of all groups.
  void forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
               const TensorView& src, const NormStats& stats) const;
  void backward_input(Stream& stream, const BlockWeights& weights, const TensorView& grad_src,
                      const TensorView& grad_dst, const TensorView& src,
                      const NormStats& stats) const;
  bool wants_gradient(const BlockWeights& weights) const {
    return static_cast<bool>(weights.params[weight_index_].grad);
  }
  void backward_weight(Stream& stream, const BlockWeights& weights, const TensorView& grad_dst,
                       const TensorView& src, const NormStats& stats) const;

 private:
  // The columns of a group.
  TensorView part(const TensorView& rows, int64_t group) const {
    return rows.column_range(group * columns_, (group + 1) * columns_);
  }
  TensorView statistics(const NormStats& stats, int64_t group) const {
    return stats.rstd ? stats.rstd.column_range(group, group + 1) : TensorView{};
  }
  TensorView vector(const TensorView& weight, int64_t group) const {
    return weight.row_range(group * columns_, (group + 1) * columns_);
  }

  double eps_ = 0;
  int64_t groups_ = 0;
  int64_t columns_ = 0;  // of one
  size_t weight_index_ = 0;
};

}  // namespace jige::model
