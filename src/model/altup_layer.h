// AltUpLayer: what stands before and behind a layer of a model with several residual streams (Gemma
// 3n), of which the layer reads the first alone.
//
// Shapes: T tokens, D width, N streams x of D columns each (ops/altup.h).
//   modes(r) = tanh(norm(r) Wrᵀ / D)                    [T, N]
//   p_i = x_i + Σ_j m[i, j] x_j,   m = modes(x_0) Wpᵀ   [T, N²]; the layer makes y of p_0
//   q_i = p_i + (1 + g[i]) (y - p_0),   g = modes(y) Wcᵀ
//   f = q_0 times a vector, where that counts: what the layer's own input meets
//                                                       (layer_input.h), which goes to q_1 …
// The matrices are kept in the compute type, whatever the format of the others.
//
// saved: p_0, y, q_0, modes, m and g, and 1/std of the norms. pending: the gradients at the normed
// rows, at the router's product, at m and g, and what tokens add to that of the vector.
// Both places where modes are made have the rows of a token side by side, so that W adds tokens in
// their order however a step is cut.
// Threads: const.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"
#include "model/stream_layout.h"

namespace jige::model {

// Full names of the modules, without ".weight"; the vector's is a whole name.
struct AltUpNames {
  std::string router;
  std::string router_norm;
  std::string prediction;
  std::string correction;
  std::string output_scale;
};

class AltUpLayer {
 public:
  // Appends the parameters.
  AltUpLayer(const formats::ModelConfig& config, const AltUpNames& names, DeviceKind device,
             std::vector<ParamSpec>& params);

  std::array<const Projection*, 3> projections() const {
    return {&router_, &prediction_, &correction_};
  }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);

  // Where modes are made, and what stands in two columns or column ranges.
  enum Place { kBefore, kAfter };
  struct Saved {
    TensorView active, result;  // p_0 and y, [T, D] f32
    TensorView corrected;       // q_0, where a backward follows
    TensorView modes;           // [T, 2 N] compute type
    NormStats stats;            // [T, 2], empty where no backward follows
    TensorView map, gains;      // m and g, [T, N²] and [T, N] f32
  };
  struct Pending {
    TensorView rows;        // [T, 2 D] compute type, at the normed rows
    TensorView routed;      // [T, 2 N] likewise, at the router's product
    TensorView map, gains;  // [T, N²] and [T, N] compute type
    TensorView scaled;      // [T, D] f32
  };
  struct Work {
    TensorView scaled;   // f, or the gradient at it; [T, D] f32
    TensorView result;   // in training: the gradient at y, then at p_0; [T, D] f32
    TensorView others;   // in training: the sum of the gradients at q_1 …; [T, D] f32
    TensorView rows;     // [T, D] compute type; in training [T, 2 D]
    TensorView sources;  // in training: what the norm reads, [T, 2 D] f32
    TensorView routed;   // [T, N] f32
    TensorView modes;    // [T, N] compute type
    TensorView map;      // [T, N²] f32
    TensorView scratch;
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute, bool keeps) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // p of the streams src, both as the layout has them: p_0 to saved.active, the others to dst.
  void predict(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& dst,
               const TensorView& src, const Saved& saved, const Work& work) const;
  // q to dst, which has what predict() put there, from saved.result; f to work.scaled.
  void correct(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& dst,
               const Saved& saved, const Work& work) const;

  // The other way. `grad` are the streams' gradients, in place. First that at f is in work.scaled;
  // then work.result is the gradient at y.
  void backward_correct(Stream& stream, const BlockWeights& weights, DType compute,
                        const TensorView& grad, const Saved& saved, const Pending& pending,
                        const Work& work) const;
  // What came to p_0 through the layer is in work.result.
  void backward_predict(Stream& stream, const BlockWeights& weights, DType compute,
                        const TensorView& grad, const TensorView& src, const Saved& saved,
                        const Pending& pending, const Work& work) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& src, GradientUse gradients, const Saved& saved,
                       const Pending& pending, const Work& work) const;

 private:
  void make_modes(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& src,
                  Place place, const Saved& saved, const Work& work) const;
  // Adds to grad_src, from the gradient at the modes in work.modes.
  void backward_modes(Stream& stream, const BlockWeights& weights, DType compute,
                      const TensorView& grad_src, const TensorView& src, Place place,
                      const Saved& saved, const Pending& pending, const Work& work) const;
  void modes_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& src, GradientUse gradients, const Saved& saved,
                       const Pending& pending, const Work& work) const;
  // Of rows that both places have, those of one.
  static TensorView part(const TensorView& rows, Place place) {
    const int64_t columns = rows.columns() / 2;
    return rows.column_range(place * columns, (place + 1) * columns);
  }
  NormStats part(const NormStats& stats, Place place) const {
    return {.rstd = stats.rstd ? part(stats.rstd, place) : TensorView{}};
  }

  StreamLayout layout_;
  int64_t width_;
  int64_t count_;  // N
  NormLayer norm_;
  Projection router_, prediction_, correction_;
  std::optional<size_t> scale_;  // the vector
};

}  // namespace jige::model
