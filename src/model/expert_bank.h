// ExpertBank: a linear layer of every expert, all of one shape, run as one product
// (expert_linear.h).
//
// Shapes: E experts, R rows, K inputs, N outputs of all parts (gate and up, or down alone). The
// packed forms of the experts lie one after the other, as many bytes apart; parameters are
// "<prefix><expert>.<part>.weight", expert by expert, and behind all of them, where there are any,
// "<prefix><expert>.<part>.bias". Biases are packed as [E, N] f32; the products do without them.
// No adapters. Threads: const.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/expert_linear.h"

namespace jige::model {

struct ExpertBankOptions {
  std::string prefix;  // "model.layers.0.mlp.experts."
  std::vector<ProjectionOptions::Part> parts;
  int64_t count = 0;
  int64_t inputs = 0;
  bool bias = false;
  double init_std = 0.02;
  // Files may hold all experts' parts in tensors of this name, biases behind it with "_bias".
  std::string stacked;                   // "model.layers.0.mlp.experts.gate_up_proj"
  bool stacked_usual = false;            // and do
  bool stacked_in_turns = false;         // rows of parts come in turns there,
  bool stacked_transposed = false;       // and matrices are transposed
  DeviceKind device = DeviceKind::kCpu;  // that multiplies
};

class ExpertBank {
 public:
  ExpertBank() = default;
  // Appends the parameters.
  ExpertBank(ExpertBankOptions options, std::vector<ParamSpec>& params);

  int64_t inputs() const { return options_.inputs; }
  int64_t outputs() const { return outputs_; }

  // As those of Projection.
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const;
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const;
  int64_t strip_bytes(DType compute) const {
    if (options_.device == DeviceKind::kCuda) return 0;
    return ops::linear_strip_bytes(compute, outputs_, options_.inputs);
  }
  int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                               bool frozen_base) const;

  // [E, N] f32; empty without biases.
  TensorView biases(const BlockWeights& weights, DType compute) const;
  // The gradients of a part's biases by expert.
  std::vector<TensorView> bias_gradients(const BlockWeights& weights, size_t part) const;

  struct Pass {
    TensorView dst;       // [R, N] of F, [R, K] of X; f32 or bf16
    TensorView src;       // [R, K] of F, [R, N] of X
    TensorView row_ends;  // [E]
    int64_t token_count = 0;
  };
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const Pass& pass) const;
  // ops::expert_gated_forward(), whose weights this sets.
  bool forward_gated(Stream& stream, const BlockWeights& weights, DType compute,
                     ops::ExpertGated args) const;
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const Pass& pass) const;

  bool wants_gradient(const BlockWeights& weights) const;
  struct BackwardWeight {
    TensorView grad_dst;  // [R, N]
    TensorView src;       // [R, K]
    TensorView row_ends;
    GradientUse gradients = GradientUse::kAdd;
  };
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const BackwardWeight& args) const;

 private:
  // The experts' packed forms for one use; `stride_bytes` apart from `offset` on.
  struct Place {
    int64_t offset = 0;
    int64_t stride_bytes = 0;
    int64_t bias = 0;  // of biases; forward alone
  };
  Place take(Placement& at, DType compute, ops::PackUse use, ops::WeightFormat format) const;
  ops::ExpertWeights packed(const BlockWeights& weights, DType compute, ops::PackUse use) const;
  // Whether a matrix has one packed form for F and X.
  bool shares_form(ops::WeightFormat format) const {
    return format != ops::WeightFormat::kCompute || options_.device == DeviceKind::kCuda;
  }
  size_t param_of(int64_t expert, size_t part) const {
    return first_param_ + static_cast<size_t>(expert) * options_.parts.size() + part;
  }
  size_t bias_of(int64_t expert, size_t part) const {
    return param_of(expert, part) + static_cast<size_t>(options_.count) * options_.parts.size();
  }
  StackedPlace stacked_place(int64_t expert, size_t part, const char* suffix) const;
  void pack_biases(Stream& stream, const BlockWeights& weights, DType compute) const;
  int64_t row_of_part(size_t part) const;
  // The gradients of parts [first, last) of every expert as one matrix each, where they adjoin in
  // memory; otherwise nothing.
  std::vector<TensorView> adjoining_gradients(const BlockWeights& weights, size_t first,
                                              size_t last) const;

  ExpertBankOptions options_;
  size_t first_param_ = 0;
  int64_t outputs_ = 0;
  Place forward_[kPackLayouts];
  Place backward_[kPackLayouts];
};

}  // namespace jige::model
