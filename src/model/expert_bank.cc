#include "model/expert_bank.h"

#include <algorithm>
#include <utility>

namespace jige::model {

ExpertBank::ExpertBank(ExpertBankOptions options, std::vector<ParamSpec>& params)
    : options_(std::move(options)), first_param_(params.size()) {
  for (const auto& part : options_.parts) outputs_ += part.outputs;
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    for (size_t part = 0; part < options_.parts.size(); ++part) {
      params.push_back({.name = options_.prefix + std::to_string(expert) + "." +
                                options_.parts[part].name + ".weight",
                        .shape = Shape{options_.parts[part].outputs, options_.inputs},
                        .init = InitKind::kNormal,
                        .init_std = options_.init_std,
                        .decay = true,
                        .packed = true,
                        .stacked = stacked_place(expert, part, "")});
    }
  }
  if (!options_.bias) return;
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    for (size_t part = 0; part < options_.parts.size(); ++part) {
      params.push_back({.name = options_.prefix + std::to_string(expert) + "." +
                                options_.parts[part].name + ".bias",
                        .shape = Shape{options_.parts[part].outputs},
                        .init = InitKind::kZero,
                        .packed = true,
                        .stacked = stacked_place(expert, part, "_bias")});
    }
  }
}

StackedPlace ExpertBank::stacked_place(int64_t expert, size_t part, const char* suffix) const {
  return {.tensor = options_.stacked + suffix,
          .expert = expert,
          .expert_count = options_.count,
          .part = static_cast<int64_t>(part),
          .part_count = static_cast<int64_t>(options_.parts.size()),
          .interleaved = options_.stacked_in_turns,
          .transposed = options_.stacked_transposed,
          .usual = options_.stacked_usual};
}

ExpertBank::Place ExpertBank::take(Placement& at, DType compute, ops::PackUse use,
                                   ops::WeightFormat format) const {
  const int64_t bytes =
      ops::packed_weight_bytes(compute, use, outputs_, options_.inputs, format, options_.device);
  Place place{.offset = at.offset()};
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    const int64_t offset = at.take_bytes(bytes);
    if (expert == 1) place.stride_bytes = offset - place.offset;
  }
  return place;
}

void ExpertBank::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  Place& place = forward_[pack_layout(compute, format)];
  place = take(at, compute, ops::PackUse::kForward, format);
  if (options_.bias) place.bias = at.take_bytes(options_.count * outputs_ * 4);
}

void ExpertBank::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  const size_t layout = pack_layout(compute, format);
  backward_[layout] = shares_form(format) ? forward_[layout]
                                          : take(at, compute, ops::PackUse::kInputGradient, format);
}

ops::ExpertWeights ExpertBank::packed(const BlockWeights& weights, DType compute,
                                      ops::PackUse use) const {
  const size_t layout = pack_layout(compute, weights.format);
  const Place& place = use == ops::PackUse::kForward ? forward_[layout] : backward_[layout];
  if (weights.format != ops::WeightFormat::kCompute) use = ops::PackUse::kForward;
  const int64_t bytes = ops::packed_weight_bytes(compute, use, outputs_, options_.inputs,
                                                 weights.format, options_.device);
  const int64_t end = place.offset + (options_.count - 1) * place.stride_bytes + bytes;
  JIGE_CHECK(end <= weights.packed.count(), "packed experts {} end at byte {} of {}",
             options_.prefix, end, weights.packed.count());
  return {.first = {.data = static_cast<std::byte*>(weights.packed.data) + place.offset,
                    .compute = compute,
                    .use = use,
                    .n = outputs_,
                    .k = options_.inputs,
                    .format = weights.format,
                    .device = options_.device},
          .stride_bytes = place.stride_bytes,
          .count = options_.count};
}

int64_t ExpertBank::row_of_part(size_t part) const {
  int64_t row = 0;
  for (size_t i = 0; i < part; ++i) row += options_.parts[i].outputs;
  return row;
}

void ExpertBank::pack(Stream& stream, const BlockWeights& weights, DType compute,
                      PackFor use) const {
  const bool both = use == PackFor::kTraining && !shares_form(weights.format);
  const ops::ExpertWeights forward = packed(weights, compute, ops::PackUse::kForward);
  if (options_.bias) pack_biases(stream, weights, compute);
  const ops::ExpertWeights backward =
      both ? packed(weights, compute, ops::PackUse::kInputGradient) : ops::ExpertWeights{};
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    for (size_t part = 0; part < options_.parts.size(); ++part) {
      const Param& param = weights.params[param_of(expert, part)];
      const TensorView& value = param.value;
      if (!value) continue;
      ops::pack_weight(stream, forward.at(expert), value, row_of_part(part), param.scales);
      if (both) ops::pack_weight(stream, backward.at(expert), value, row_of_part(part));
    }
  }
}

TensorView ExpertBank::biases(const BlockWeights& weights, DType compute) const {
  if (!options_.bias) return {};
  const Shape shape{options_.count, outputs_};
  const int64_t offset = forward_[pack_layout(compute, weights.format)].bias;
  JIGE_CHECK(offset + shape.count() * 4 <= weights.packed.count(), "biases of {} end past {} bytes",
             options_.prefix, weights.packed.count());
  return TensorView::of(static_cast<std::byte*>(weights.packed.data) + offset, DType::kF32, shape);
}

void ExpertBank::pack_biases(Stream& stream, const BlockWeights& weights, DType compute) const {
  const TensorView packed_biases = biases(weights, compute);
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    for (size_t part = 0; part < options_.parts.size(); ++part) {
      const TensorView& value = weights.params[bias_of(expert, part)].value;
      if (!value) continue;
      JIGE_CHECK(value.dtype == DType::kF32, "a bias of {} is not f32", options_.prefix);
      stream.copy(packed_biases.as<float>() + expert * outputs_ + row_of_part(part), value.data,
                  value.count() * 4, CopyKind::kDeviceToDevice);
    }
  }
}

std::vector<TensorView> ExpertBank::bias_gradients(const BlockWeights& weights, size_t part) const {
  std::vector<TensorView> gradients;
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    gradients.push_back(weights.params[bias_of(expert, part)].grad);
  }
  return gradients;
}

void ExpertBank::list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                            std::vector<ops::PackPart>& packs) const {
  if (options_.bias) return;  // which only pack() renews
  const size_t count = static_cast<size_t>(options_.count) * options_.parts.size();
  if (param < first_param_ || param >= first_param_ + count) return;
  const auto expert = static_cast<int64_t>((param - first_param_) / options_.parts.size());
  const int64_t row = row_of_part((param - first_param_) % options_.parts.size());
  packs.push_back({packed(weights, compute, ops::PackUse::kForward).at(expert), row});
  if (use == PackFor::kInference || shares_form(weights.format)) return;
  packs.push_back({packed(weights, compute, ops::PackUse::kInputGradient).at(expert), row});
}

int64_t ExpertBank::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                         bool frozen_base) const {
  // An expert has any number of the tokens.
  int64_t bytes = 0;
  for (int64_t rows = 1;; rows = std::min(2 * rows, token_count)) {
    bytes = std::max(
        bytes, ops::linear_thread_scratch_bytes(compute, rows, outputs_, options_.inputs, threads));
    if (!frozen_base) {
      bytes = std::max(bytes, ops::linear_backward_weight_thread_scratch_bytes(
                                  compute, rows, outputs_, options_.inputs, threads));
    }
    if (rows >= token_count) return bytes;
  }
}

void ExpertBank::forward(Stream& stream, const BlockWeights& weights, DType compute,
                         const Pass& pass) const {
  ops::expert_product(stream, {.dst = pass.dst,
                               .src = pass.src,
                               .weights = packed(weights, compute, ops::PackUse::kForward),
                               .row_ends = pass.row_ends,
                               .token_count = pass.token_count,
                               .strip = weights.strip});
}

bool ExpertBank::forward_gated(Stream& stream, const BlockWeights& weights, DType compute,
                               ops::ExpertGated args) const {
  args.weights = packed(weights, compute, ops::PackUse::kForward);
  return ops::expert_gated_forward(stream, args);
}

void ExpertBank::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                const Pass& pass) const {
  ops::expert_product(stream, {.dst = pass.dst,
                               .src = pass.src,
                               .weights = packed(weights, compute, ops::PackUse::kInputGradient),
                               .use = ops::PackUse::kInputGradient,
                               .row_ends = pass.row_ends,
                               .token_count = pass.token_count,
                               .strip = weights.strip});
}

bool ExpertBank::wants_gradient(const BlockWeights& weights) const {
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    for (size_t part = 0; part < options_.parts.size(); ++part) {
      if (weights.params[param_of(expert, part)].grad) return true;
    }
  }
  return false;
}

std::vector<TensorView> ExpertBank::adjoining_gradients(const BlockWeights& weights, size_t first,
                                                        size_t last) const {
  std::vector<TensorView> gradients;
  for (int64_t expert = 0; expert < options_.count; ++expert) {
    const TensorView& begin = weights.params[param_of(expert, first)].grad;
    int64_t rows = 0;
    for (size_t part = first; part < last; ++part) {
      const TensorView& grad = weights.params[param_of(expert, part)].grad;
      const bool adjoins =
          last - first == 1 ||
          (begin && grad && grad.as<float>() == begin.as<float>() + rows * options_.inputs);
      if (!adjoins) return {};
      rows += options_.parts[part].outputs;
    }
    gradients.push_back(begin
                            ? TensorView::of(begin.data, begin.dtype, Shape{rows, options_.inputs})
                            : TensorView{});
  }
  return gradients;
}

void ExpertBank::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                 const BackwardWeight& args) const {
  const auto add = [&](std::vector<TensorView> gradients, int64_t begin, int64_t end) {
    ops::expert_weight_gradient(stream, {.grads = std::move(gradients),
                                         .grad_dst = args.grad_dst.column_range(begin, end),
                                         .src = args.src,
                                         .row_ends = args.row_ends,
                                         .compute = compute,
                                         .accumulate = args.gradients == GradientUse::kAdd});
  };
  const size_t parts = options_.parts.size();
  if (auto whole = adjoining_gradients(weights, 0, parts); !whole.empty()) {
    add(std::move(whole), 0, outputs_);
    return;
  }
  for (size_t part = 0; part < parts; ++part) {
    const int64_t row = row_of_part(part);
    add(adjoining_gradients(weights, part, part + 1), row, row + options_.parts[part].outputs);
  }
}

}  // namespace jige::model
