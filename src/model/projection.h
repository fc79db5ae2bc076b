// Projection: one linear layer made of parts that share their input (q, k and v; gate and up), run
// as a single product, with optional biases and LoRA adapters.
//
// Shapes: T tokens, K inputs, N outputs of all parts; part p has N_p rows of the weight. A part may
// carry an adapter A_p [r, K], B_p [N_p, r] of scale s (formats/lora_config.h):
//   y_p = x W_pᵀ + b_p + u_p B_pᵀ          u = s · D(x) Aᵀ, A all parts' A stacked [R, K]
//   v_p = s · dy_p B_p                     dx = dy W + D(v A)
//   dW_p += dy_pᵀ x   dB_p += dy_pᵀ u_p    dA_p += v_pᵀ D(x)
// D is dropout of the model's own adapter in training steps (ops/dropout.h), one mask for all
// parts, its site a hash of the first part's name. D(x) is made anew for W.
// With DoRA (ops/dora.h) that adapter gives lengths m_p to the rows of W_p + s B_p A_p:
//   y_p = f_p ∘ (x W_pᵀ + u_p B_pᵀ) + b_p     X first multiplies dy_p with f_p
// f_p is worked out as matrices are packed, and W makes what it is multiplied with anew, for dm_p.
// Where a model multiplies x with a number or columns of y, biases included, with others, the
// columns are multiplied with both at the end, and biases are packed by the first; weights stay as
// files have them.
// x, u, v and dy are in the compute type or, for y into the residual stream, f32.
// u lives from F to W ("saved"), v from X to W ("pending").
// Adapters that are not the model's own may be added to rows of F (adapter.h), after the product
// that all rows share, whose bits they leave as they are.
// W may be kept in the compute type or, where it is not trained, in blocks of fewer bits
// (ops/linear.h): then F and X of training multiply by the numbers that these stand for, one form
// for both. A and B are always in the compute type. On a GPU every matrix has one form.
// Threads: const.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/lora_config.h"
#include "model/block.h"
#include "model/placement.h"
#include "ops/kept_linear.h"

namespace jige::model {

// Whether an adapter configuration targets the linear layer of this full name. No targets: every
// one.
bool adapts(const std::optional<formats::LoraConfig>& lora, const std::string& linear_name);

// The layouts of a buffer of packed forms: compute types times formats.
inline constexpr size_t kPackLayouts = 2 * std::size(ops::kWeightFormats);
inline size_t pack_layout(DType compute, ops::WeightFormat format) {
  return static_cast<size_t>(format) * 2 + (compute == DType::kBF16 ? 1 : 0);
}

// Rows that are those of heads one behind the other, of keys and of values each. Inference takes
// such a projection apart (latent_heads.h).
struct HeadRows {
  int64_t heads = 0;
  int64_t own = 0;    // of a head's keys
  int64_t value = 0;  // of its values
};

struct ProjectionOptions {
  struct Part {
    std::string name;  // "model.layers.0.self_attn.q_proj"
    int64_t outputs = 0;
    std::optional<StoredRows> stored_rows = {};
    bool plain = false;  // without a bias, and without an adapter of the model's own
  };
  std::vector<Part> parts;
  int64_t inputs = 0;
  bool bias = false;
  bool transposed = false;  // files hold [in, out]
  // What x is multiplied with, and so many columns each of y, from the first on.
  double input_scale = 1;
  struct Scale {
    int64_t columns = 0;
    double factor = 1;
  };
  std::vector<Scale> scales = {};
  std::optional<HeadRows> by_head;  // of the one part there is then
  // What parts read and what each gives is held within bounds; those of "….q_proj.linear" files
  // have as "….q_proj.input_min" and the like. For inference on CPUs, without adapters and biases.
  bool bounded = false;
  bool whole = false;  // kept in the compute type whatever the format of the block
  double init_std = 0.02;
  std::optional<formats::LoraConfig> lora;  // low-rank adapters (Hu et al., 2021)
  DeviceKind device = DeviceKind::kCpu;     // that multiplies
};

// The parts of these names, or the one of a module that holds all of them.
std::vector<ProjectionOptions::Part> fused_parts(const std::vector<std::string>& names,
                                                 const std::vector<int64_t>& outputs);

class Projection {
 public:
  Projection() = default;
  // Appends "<part>.weight" of all parts, then "<part>.bias", then the adapters' matrices.
  Projection(ProjectionOptions options, std::vector<ParamSpec>& params);

  // Fails with kUnsupported where parts of a bounded one, which read the same, have other bounds to
  // read it within.
  Status check_bounds(const BlockWeights& weights) const;

  int64_t inputs() const { return options_.inputs; }
  int64_t outputs() const { return outputs_; }
  const std::vector<ProjectionOptions::Part>& parts() const { return options_.parts; }
  const std::optional<HeadRows>& by_head() const { return options_.by_head; }
  bool adapted() const { return adapter_rows_ > 0; }
  // What biases are multiplied with as they are packed.
  float bias_scale() const { return bias_scale_; }

  // Plans the places of the packed forms: what F reads first, then (a second call, for training)
  // what X reads, so that places do not depend on the use. PackedSizes does it.
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);
  // Gives the lengths of DoRA's rows, where they have memory, those of W. REQUIRES: W was packed.
  void start_magnitudes(Stream& stream, const BlockWeights& weights, DType compute) const;
  // Packs every parameter that has a value.
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const;

  // As Block::list_packs; none for a projection with biases or adapters.
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const;

  // As Block::strip_bytes.
  int64_t strip_bytes(DType compute) const {
    if (options_.whole) return 0;
    return ops::linear_strip_bytes(compute, outputs_, options_.inputs, options_.device);
  }

  // The place of u or v, [T, R]; an empty view without adapters.
  TensorView place_product(Placement& at, int64_t token_count, DType compute) const;
  // Bytes of scratch that F and X need at most, and that W uses.
  int64_t scratch_bytes(int64_t token_count) const;
  int64_t weight_scratch_bytes(int64_t token_count, DType compute) const;
  // As Block::thread_scratch_bytes.
  int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                               bool frozen_base) const;

  struct Forward {
    TensorView dst;      // [T, N] compute type or f32
    TensorView src;      // [T, K] compute type; of a bounded one it becomes what is within bounds
    TensorView product;  // u
    TensorView scratch;  // u8, scratch_bytes
    ops::Dropout dropout = {};
    bool past_caches = false;  // ops/linear.h
    const StepAdapters* adapters = nullptr;
    // [T, N] f32, not in dst's memory: added to dst, which is f32, once all else is. Or empty.
    TensorView addend = {};
    const ops::NormForward* norm = nullptr;  // what makes src and is still to be done, or null
  };
  void forward(Stream& stream, const BlockWeights& weights, DType compute,
               const Forward& args) const;
  // The product of a gate and what it gates, and what comes of them in one, dst [T, N / 2], as
  // ops::linear_gated_forward; not in the memory of src. False, and nothing is done, where there
  // are two steps to be taken.
  bool forward_gated(Stream& stream, const BlockWeights& weights, DType compute,
                     const Forward& args, ops::GatedUnit unit) const;

  struct BackwardInput {
    TensorView grad_src;  // [T, K] compute type, overwritten
    TensorView grad_dst;  // [T, N] compute type; becomes that of the product before its scales
    TensorView product;   // v
    TensorView scratch;
    ops::Dropout dropout = {};
    bool past_caches = false;
  };
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const BackwardInput& args) const;

  struct BackwardWeight {
    TensorView grad_dst;          // [T, N] as X left it, and no longer behind W
    TensorView src;               // [T, K]
    TensorView product_forward;   // u
    TensorView product_backward;  // v
    TensorView scratch;           // u8, weight_scratch_bytes
    ops::Dropout dropout = {};
    GradientUse gradients = GradientUse::kAdd;
  };
  // Whether any gradient is wanted; W may be skipped, and with it what only W reads, if not.
  bool wants_gradient(const BlockWeights& weights) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const BackwardWeight& args) const;

  // F, X and W where rows keep some columns of a hidden width alone, which is one side of it; rows
  // of that side have the kept columns side by side (ops/kept_linear.h).
  struct Kept {
    ops::KeptSide side;
    const ops::KeptColumns& columns;
  };
  // Whether it has these: one product without adapters and scales, on a CPU.
  bool may_keep() const {
    return !adapted() && scales_.empty() && options_.device == DeviceKind::kCpu;
  }
  // REQUIRES: may_keep(), a base in the compute type; args without adapters and norm.
  void forward_kept(Stream& stream, const BlockWeights& weights, DType compute, const Forward& args,
                    const Kept& kept) const;
  void backward_input_kept(Stream& stream, const BlockWeights& weights, DType compute,
                           const BackwardInput& args, const Kept& kept) const;
  void backward_weight_kept(Stream& stream, const BlockWeights& weights, DType compute,
                            const BackwardWeight& args, const Kept& kept) const;

 private:
  // Places in BlockWeights::packed of one compute type and format.
  struct Packed {
    int64_t forward = 0;
    int64_t bias = 0;      // all parts', [N] f32
    int64_t backward = 0;  // where one form serves both uses, the forward one
    int64_t adapter_a_forward = 0;
    int64_t adapter_a_backward = 0;
    int64_t squares = 0;                     // of DoRA: of rows of W, [N] f32
    int64_t factors = 0;                     // likewise f
    int64_t addends = 0;                     // [N] f32, where there are biases
    int64_t products = 0;                    // A Wᵀ of a part, [r, N] f32
    std::vector<int64_t> adapter_b_forward;  // by part
    std::vector<int64_t> adapter_b_backward;
  };
  struct Part {
    int64_t row_begin = 0;
    int64_t rows = 0;
    size_t weight = 0;  // indices into BlockWeights::params
    std::optional<size_t> bias;
    bool adapted = false;
    size_t adapter_a = 0;
    size_t adapter_b = 0;
    size_t magnitude = 0;     // of DoRA
    size_t bounds = 0;        // the first of four, where the projection is bounded
    int64_t adapter_row = 0;  // first row in the stacked A
  };

  // Columns of y that are multiplied with another number than 1.
  struct ColumnScale {
    int64_t begin = 0;
    int64_t end = 0;
    float factor = 1;
  };

  // The gradients of the hidden width's parts: slices of parameters', one for each that is wanted
  // to begin at this row, or empty.
  TensorView gradient_rows(const BlockWeights& weights, int64_t begin, int64_t count,
                           bool of_bias) const;
  void add_scales();
  void apply_scales(Stream& stream, const TensorView& rows) const;
  void bias_gradients(Stream& stream, const BlockWeights& weights,
                      const TensorView& grad_dst) const;
  void add_adapters(std::vector<ParamSpec>& params);
  void add_bounds(std::vector<ParamSpec>& params);
  void forward_bounded(Stream& stream, const BlockWeights& weights, DType compute,
                       const Forward& args) const;
  const Packed& packed(DType compute, ops::WeightFormat format) const {
    return packed_[pack_layout(compute, format)];
  }
  // That of W in a block of this format. MXFP4 is for experts alone.
  ops::WeightFormat own_format(ops::WeightFormat format) const {
    if (options_.whole) return ops::WeightFormat::kCompute;
    return format == ops::WeightFormat::kMxfp4 ? ops::WeightFormat::kQ8 : format;
  }
  // Whether W, or an adapter's matrix, has one packed form for F and X.
  bool shares_form(ops::WeightFormat format) const {
    return own_format(format) != ops::WeightFormat::kCompute || shares_adapter_form();
  }
  bool shares_adapter_form() const { return options_.device == DeviceKind::kCuda; }
  // Bytes of an adapter's matrix.
  int64_t adapter_bytes(DType compute, ops::PackUse use, int64_t n, int64_t k) const {
    return ops::packed_weight_bytes(compute, use, n, k, ops::WeightFormat::kCompute,
                                    options_.device);
  }
  TensorView bias_view(const BlockWeights& weights, DType compute) const;
  // A matrix at a place: W, or of an adapter.
  ops::PackedWeight whole_view(const BlockWeights& weights, DType compute, ops::PackUse use) const;
  ops::PackedWeight adapter_view(const BlockWeights& weights, DType compute, ops::PackUse use,
                                 int64_t offset, Shape shape) const;
  void check_place(const BlockWeights& weights, int64_t end) const;
  // What F adds: the model's own adapter to all rows, those of a step to theirs.
  // D(src) at the beginning of a scratch, which becomes what is left; src itself without dropout.
  TensorView dropped(Stream& stream, const TensorView& src, const ops::Dropout& dropout,
                     TensorView& scratch) const;
  int64_t dropped_bytes(int64_t token_count) const;
  void add_own_adapter(Stream& stream, const BlockWeights& weights, DType compute,
                       const Forward& args) const;
  void add_step_adapters(Stream& stream, const Forward& args) const;
  void pack_matrices(Stream& stream, const BlockWeights& weights, DType compute,
                     ops::PackUse use) const;
  bool dora() const { return adapted() && options_.lora->use_dora; }
  // Of a part, among those of all columns at a place of the packed forms.
  TensorView columns_of(const BlockWeights& weights, int64_t offset, const Part& part) const;
  void pack_squares(Stream& stream, const BlockWeights& weights, DType compute) const;
  void pack_factors(Stream& stream, const BlockWeights& weights, DType compute) const;
  void magnitude_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                           const BackwardWeight& args) const;
  int64_t magnitude_scratch_bytes(int64_t token_count) const;
  void pack_bias(Stream& stream, const BlockWeights& weights, DType compute) const;
  void weight_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                        const BackwardWeight& args) const;
  // Of the parts [first, last), which are one product: the rows whose gradients W computes.
  std::vector<ops::RowRange> computed_rows(const BlockWeights& weights, size_t first,
                                           size_t last) const;
  void adapter_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                         const BackwardWeight& args) const;

  ProjectionOptions options_;
  std::vector<Part> parts_;
  int64_t outputs_ = 0;
  int64_t adapter_rows_ = 0;  // R
  int64_t rank_ = 0;
  float adapter_scale_ = 0;
  uint64_t dropout_site_ = 0;
  std::vector<ColumnScale> scales_;
  float bias_scale_ = 1;  // of biases as they are packed
  Packed packed_[kPackLayouts];
};

// Plans the packed forms of projections and the like, one after the other in one buffer, for every
// layout, and holds its bytes.
class PackedSizes {
 public:
  PackedSizes() = default;
  // REQUIRES: parts with plan_forward and plan_backward, as Projection has them, or null.
  template <typename... Parts>
  explicit PackedSizes(Parts*... parts) {
    for (const ops::WeightFormat format : ops::kWeightFormats) {
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        const size_t layout = pack_layout(compute, format);
        Placement at;
        ((parts ? parts->plan_forward(at, compute, format) : void()), ...);
        inference_[layout] = at.peak_bytes();
        ((parts ? parts->plan_backward(at, compute, format) : void()), ...);
        training_[layout] = at.peak_bytes();
      }
    }
  }
  // As Block::packed_bytes.
  int64_t bytes(DType compute, PackFor use, ops::WeightFormat format) const;

 private:
  int64_t inference_[kPackLayouts] = {};
  int64_t training_[kPackLayouts] = {};
};

}  // namespace jige::model
