#include "model/projection.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/rng.h"
#include "model/adapter.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/low_rank.h"

namespace jige::model {

bool adapts(const std::optional<formats::LoraConfig>& lora, const std::string& linear_name) {
  if (!lora) return false;
  const auto& targets = lora->target_modules;
  return targets.empty() || std::any_of(targets.begin(), targets.end(), [&](const auto& target) {
           return linear_name.ends_with("." + target);
         });
}

std::vector<ProjectionOptions::Part> fused_parts(const std::vector<std::string>& names,
                                                 const std::vector<int64_t>& outputs) {
  if (names.size() == 1) {  // one module holds all of them
    int64_t sum = 0;
    for (const int64_t count : outputs) sum += count;
    return {{names[0], sum}};
  }
  std::vector<ProjectionOptions::Part> parts;
  for (size_t i = 0; i < names.size(); ++i) parts.push_back({names[i], outputs[i]});
  return parts;
}

Projection::Projection(ProjectionOptions options, std::vector<ParamSpec>& params)
    : options_(std::move(options)) {
  for (const auto& part : options_.parts) {
    parts_.push_back({.row_begin = outputs_, .rows = part.outputs, .weight = params.size()});
    params.push_back({.name = part.name + ".weight",
                      .shape = Shape{part.outputs, options_.inputs},
                      .init = InitKind::kNormal,
                      .init_std = options_.init_std,
                      .decay = true,
                      .packed = true,
                      .transposed = options_.transposed,
                      .by_rows = options_.device == DeviceKind::kCpu,
                      .stored_rows = part.stored_rows});
    outputs_ += part.outputs;
  }
  for (size_t i = 0; options_.bias && i < parts_.size(); ++i) {
    if (options_.parts[i].plain) continue;
    parts_[i].bias = params.size();
    params.push_back({.name = options_.parts[i].name + ".bias",
                      .shape = Shape{parts_[i].rows},
                      .init = InitKind::kZero,
                      .packed = true,
                      .stored_rows = options_.parts[i].stored_rows});
  }
  add_adapters(params);
  add_scales();
  if (options_.bounded) add_bounds(params);
}

void Projection::add_scales() {
  const double input = options_.input_scale;
  bias_scale_ = static_cast<float>(1.0 / input);
  std::vector<ProjectionOptions::Scale> all = options_.scales;
  int64_t given = 0;
  for (const auto& scale : all) given += scale.columns;
  JIGE_CHECK(given <= outputs_, "scales of {} of {} columns", given, outputs_);
  all.push_back({.columns = outputs_ - given});
  int64_t begin = 0;
  for (const auto& scale : all) {
    const int64_t end = begin + scale.columns;
    const auto factor = static_cast<float>(input * scale.factor);
    if (end > begin && factor != 1.0f) scales_.push_back({begin, end, factor});
    begin = end;
  }
  JIGE_CHECK(scales_.empty() || !options_.by_head, "products by head have no scales");
}

void Projection::apply_scales(Stream& stream, const TensorView& rows) const {
  for (const ColumnScale& scale : scales_) {
    const TensorView columns = rows.column_range(scale.begin, scale.end);
    ops::scale(stream, columns, columns, scale.factor);
  }
}

void Projection::add_adapters(std::vector<ParamSpec>& params) {
  if (!options_.lora) return;
  rank_ = options_.lora->rank;
  adapter_scale_ = static_cast<float>(options_.lora->scale());
  dropout_site_ = derive_key(0, options_.parts.front().name);
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    const std::string& name = options_.parts[i].name;
    part.adapted = !options_.parts[i].plain && adapts(options_.lora, name);
    if (!part.adapted) continue;
    part.adapter_row = adapter_rows_;
    adapter_rows_ += rank_;
    part.adapter_a = params.size();
    // The bound of PEFT's default, Kaiming uniform with a = sqrt(5).
    params.push_back({.name = formats::lora_tensor_name(name, formats::LoraPart::kA),
                      .shape = Shape{rank_, options_.inputs},
                      .init = InitKind::kUniform,
                      .init_std = 1.0 / std::sqrt(static_cast<double>(options_.inputs)),
                      .decay = true,
                      .packed = true,
                      .adapter = true});
    part.adapter_b = params.size();
    params.push_back({.name = formats::lora_tensor_name(name, formats::LoraPart::kB),
                      .shape = Shape{part.rows, rank_},
                      .init = InitKind::kZero,
                      .decay = true,
                      .packed = true,
                      .adapter = true,
                      .adapter_b = true,
                      .stored_rows = options_.parts[i].stored_rows});
    if (!options_.lora->use_dora) continue;
    part.magnitude = params.size();
    params.push_back({.name = formats::lora_tensor_name(name, formats::LoraPart::kMagnitude),
                      .shape = Shape{part.rows},
                      .init = InitKind::kOne,  // start_magnitudes() follows
                      .adapter = true,
                      .stored_rows = options_.parts[i].stored_rows});
  }
}

void Projection::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  Packed& place = packed_[pack_layout(compute, format)];
  const auto use = ops::PackUse::kForward;
  const auto take = [&](int64_t n, int64_t k) {
    return at.take_bytes(adapter_bytes(compute, use, n, k));
  };
  place.forward = at.take_bytes(ops::packed_weight_bytes(compute, use, outputs_, options_.inputs,
                                                         own_format(format), options_.device));
  if (options_.bias) place.bias = at.take_bytes(outputs_ * 4);
  if (!adapted()) return;
  place.adapter_a_forward = take(adapter_rows_, options_.inputs);
  for (const Part& part : parts_) {
    place.adapter_b_forward.push_back(part.adapted ? take(part.rows, rank_) : 0);
  }
  if (!dora()) return;
  place.squares = at.take_bytes(outputs_ * 4);
  place.factors = at.take_bytes(outputs_ * 4);
  if (options_.bias) place.addends = at.take_bytes(outputs_ * 4);
  place.products = at.take_bytes(rank_ * outputs_ * 4);
}

void Projection::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  Packed& place = packed_[pack_layout(compute, format)];
  const auto take = [&](int64_t n, int64_t k) {
    return at.take_bytes(adapter_bytes(compute, ops::PackUse::kInputGradient, n, k));
  };
  place.backward = shares_form(format) ? place.forward : take(outputs_, options_.inputs);
  if (!adapted()) return;
  if (shares_adapter_form()) {
    place.adapter_a_backward = place.adapter_a_forward;
    place.adapter_b_backward = place.adapter_b_forward;
    return;
  }
  place.adapter_a_backward = take(adapter_rows_, options_.inputs);
  for (const Part& part : parts_) {
    place.adapter_b_backward.push_back(part.adapted ? take(part.rows, rank_) : 0);
  }
}

TensorView Projection::bias_view(const BlockWeights& weights, DType compute) const {
  if (!options_.bias) return {};
  const int64_t offset = packed(compute, weights.format).bias;
  check_place(weights, offset + outputs_ * 4);
  return TensorView::of(static_cast<std::byte*>(weights.packed.data) + offset, DType::kF32,
                        Shape{outputs_});
}

void Projection::check_place(const BlockWeights& weights, int64_t end) const {
  JIGE_CHECK(end <= weights.packed.count(), "packed {} ends at byte {} of {}",
             options_.parts[0].name, end, weights.packed.count());
}

ops::PackedWeight Projection::whole_view(const BlockWeights& weights, DType compute,
                                         ops::PackUse use) const {
  const Packed& place = packed(compute, weights.format);
  const int64_t offset = use == ops::PackUse::kForward ? place.forward : place.backward;
  const int64_t k = options_.inputs;
  const ops::WeightFormat format = own_format(weights.format);
  if (format != ops::WeightFormat::kCompute) use = ops::PackUse::kForward;
  check_place(weights, offset + ops::packed_weight_bytes(compute, use, outputs_, k, format,
                                                         options_.device));
  return {.data = static_cast<std::byte*>(weights.packed.data) + offset,
          .compute = compute,
          .use = use,
          .n = outputs_,
          .k = k,
          .format = format,
          .device = options_.device};
}

ops::PackedWeight Projection::adapter_view(const BlockWeights& weights, DType compute,
                                           ops::PackUse use, int64_t offset, Shape shape) const {
  check_place(weights, offset + adapter_bytes(compute, use, shape[0], shape[1]));
  return {.data = static_cast<std::byte*>(weights.packed.data) + offset,
          .compute = compute,
          .use = use,
          .n = shape[0],
          .k = shape[1],
          .device = options_.device};
}

void Projection::pack(Stream& stream, const BlockWeights& weights, DType compute,
                      PackFor use) const {
  pack_matrices(stream, weights, compute, ops::PackUse::kForward);
  if (use == PackFor::kTraining) {
    pack_matrices(stream, weights, compute, ops::PackUse::kInputGradient);
  }
  if (options_.bias) pack_bias(stream, weights, compute);
  if (!dora()) return;
  pack_squares(stream, weights, compute);
  pack_factors(stream, weights, compute);
}

void Projection::pack_matrices(Stream& stream, const BlockWeights& weights, DType compute,
                               ops::PackUse use) const {
  const Packed& place = packed(compute, weights.format);
  const bool forward = use == ops::PackUse::kForward;
  const bool is_there = !forward && shares_form(weights.format);  // by F's
  const auto whole = whole_view(weights, compute, use);
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const auto pack_if_there = [&](const ops::PackedWeight& target, size_t param, int64_t row) {
      const Param& stored = weights.params[param];
      if (stored.value) ops::pack_weight(stream, target, stored.value, row, stored.scales);
    };
    if (!is_there) pack_if_there(whole, part.weight, part.row_begin);
    if (!part.adapted || (!forward && shares_adapter_form())) continue;
    const int64_t a = forward ? place.adapter_a_forward : place.adapter_a_backward;
    const int64_t b = forward ? place.adapter_b_forward[i] : place.adapter_b_backward[i];
    pack_if_there(adapter_view(weights, compute, use, a, Shape{adapter_rows_, options_.inputs}),
                  part.adapter_a, part.adapter_row);
    pack_if_there(adapter_view(weights, compute, use, b, Shape{part.rows, rank_}), part.adapter_b,
                  0);
  }
}

void Projection::list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                            std::vector<ops::PackPart>& packs) const {
  if (options_.bias || adapted()) return;
  for (const Part& part : parts_) {
    if (part.weight != param) continue;
    packs.push_back({whole_view(weights, compute, ops::PackUse::kForward), part.row_begin});
    if (use == PackFor::kInference || shares_form(weights.format)) continue;
    packs.push_back({whole_view(weights, compute, ops::PackUse::kInputGradient), part.row_begin});
  }
}

void Projection::pack_bias(Stream& stream, const BlockWeights& weights, DType compute) const {
  const TensorView fused = bias_view(weights, compute);
  for (const Part& part : parts_) {
    const TensorView place =
        TensorView::of(fused.as<float>() + part.row_begin, DType::kF32, Shape{part.rows});
    if (!part.bias) {
      stream.fill_zero(place.data, part.rows * 4);
      continue;
    }
    const TensorView& value = weights.params[*part.bias].value;
    if (!value) continue;
    JIGE_CHECK(value.dtype == DType::kF32, "bias of {} is not f32", options_.parts[0].name);
    ops::scale(stream, place, value, bias_scale_);
  }
}

TensorView Projection::place_product(Placement& at, int64_t token_count, DType compute) const {
  return adapted() ? at.take(compute, Shape{token_count, adapter_rows_}) : TensorView{};
}

int64_t Projection::scratch_bytes(int64_t token_count) const {
  if (!adapted()) return 0;
  int64_t columns = options_.inputs;
  for (const Part& part : parts_) columns = std::max(columns, part.rows);
  return dropped_bytes(token_count) + dtype_bytes(DType::kF32, token_count * columns);
}

int64_t Projection::dropped_bytes(int64_t token_count) const {
  if (!adapted() || options_.lora->dropout == 0) return 0;
  return (dtype_bytes(DType::kF32, token_count * options_.inputs) + 63) / 64 * 64;
}

TensorView Projection::dropped(Stream& stream, const TensorView& src, const ops::Dropout& dropout,
                               TensorView& scratch) const {
  if (dropout.rate == 0) return src;
  const int64_t bytes = dropped_bytes(src.rows());
  JIGE_CHECK(0 < bytes && bytes <= scratch.count(), "dropout of {} bytes in a scratch of {}", bytes,
             scratch.count());
  const TensorView dst = TensorView::of(scratch.data, src.dtype, Shape{src.rows(), src.columns()});
  scratch = TensorView::of(static_cast<std::byte*>(scratch.data) + bytes, DType::kU8,
                           Shape{scratch.count() - bytes});
  ops::dropout(stream, dst, src, dropout, dropout_site_);
  return dst;
}

int64_t Projection::weight_scratch_bytes(int64_t token_count, DType compute) const {
  const int64_t products = ops::linear_backward_weight_scratch_bytes(
      compute, token_count, std::max(options_.inputs, rank_));
  return dropped_bytes(token_count) + std::max(products, magnitude_scratch_bytes(token_count));
}

int64_t Projection::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                         bool frozen_base) const {
  int64_t bytes = 0;
  const auto add_passes = [&](int64_t n, int64_t k) {
    bytes = std::max(bytes, ops::linear_thread_scratch_bytes(compute, token_count, n, k, threads));
  };
  const auto add_gradient = [&](int64_t n, int64_t k) {
    bytes = std::max(bytes, ops::linear_backward_weight_thread_scratch_bytes(compute, token_count,
                                                                             n, k, threads));
  };
  add_passes(outputs_, options_.inputs);
  if (!frozen_base) add_gradient(outputs_, options_.inputs);
  if (!adapted()) return bytes;
  add_passes(adapter_rows_, options_.inputs);
  add_gradient(rank_, options_.inputs);
  for (const Part& part : parts_) {
    if (!part.adapted) continue;
    add_passes(part.rows, rank_);
    add_gradient(part.rows, rank_);
  }
  return bytes;
}

void Projection::forward(Stream& stream, const BlockWeights& weights, DType compute,
                         const Forward& args) const {
  if (options_.bounded) return forward_bounded(stream, weights, compute, args);
  const auto use = ops::PackUse::kForward;
  const bool alone = !adapted() && !args.adapters;
  const bool adds = alone && scales_.empty();
  if (!alone && args.norm) ops::rms_norm_forward(stream, *args.norm);
  ops::linear_forward(stream, {.dst = args.dst,
                               .src = args.src,
                               .weight = whole_view(weights, compute, use),
                               .bias = bias_view(weights, compute),
                               .past_caches = args.past_caches,
                               .strip = weights.strip,
                               .norm = alone ? args.norm : nullptr,
                               .addend = adds ? args.addend : TensorView{}});
  if (adapted()) add_own_adapter(stream, weights, compute, args);
  if (args.adapters) add_step_adapters(stream, args);
  apply_scales(stream, args.dst);
  if (!adds && args.addend) ops::add(stream, args.dst, args.addend, args.dst);
}

bool Projection::forward_gated(Stream& stream, const BlockWeights& weights, DType compute,
                               const Forward& args, ops::GatedUnit unit) const {
  if (adapted() || args.adapters || !scales_.empty() || options_.bounded) return false;
  return ops::linear_gated_forward(
      stream, {.dst = args.dst,
               .product = {.dst = {},
                           .src = args.src,
                           .weight = whole_view(weights, compute, ops::PackUse::kForward),
                           .bias = bias_view(weights, compute),
                           .norm = args.norm},
               .unit = unit});
}

void Projection::add_own_adapter(Stream& stream, const BlockWeights& weights, DType compute,
                                 const Forward& args) const {
  const Packed& place = packed(compute, weights.format);
  const auto use = ops::PackUse::kForward;
  auto weight = std::make_shared<ops::LowRankWeight>();
  weight->a = adapter_view(weights, compute, use, place.adapter_a_forward,
                           Shape{adapter_rows_, options_.inputs});
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (!part.adapted) continue;
    weight->parts.push_back(
        {.column = part.row_begin,
         .a_row = part.adapter_row,
         .b = adapter_view(weights, compute, use, place.adapter_b_forward[i],
                           Shape{part.rows, rank_}),
         .scale = adapter_scale_,
         .factor = dora() ? columns_of(weights, place.factors, part) : TensorView{},
         .addend =
             dora() && options_.bias ? columns_of(weights, place.addends, part) : TensorView{}});
  }
  TensorView scratch = args.scratch;
  const TensorView src = dropped(stream, args.src, args.dropout, scratch);
  ops::low_rank_forward(stream, {.dst = args.dst,
                                 .src = src,
                                 .product = args.product,
                                 .scratch = scratch,
                                 .rows = {{std::move(weight), 0, args.dst.rows()}}});
}

void Projection::add_step_adapters(Stream& stream, const Forward& args) const {
  std::vector<ops::LowRankRows> rows;
  for (const AdapterRows& range : args.adapters->rows) {
    auto weight = range.adapter->find(*this);
    if (weight) rows.push_back({std::move(weight), range.row_begin, range.row_end});
  }
  if (rows.empty()) return;
  ops::low_rank_forward(stream, {.dst = args.dst,
                                 .src = args.src,
                                 .product = args.adapters->product,
                                 .scratch = args.adapters->scratch,
                                 .rows = std::move(rows)});
}

int64_t PackedSizes::bytes(DType compute, PackFor use, ops::WeightFormat format) const {
  return (use == PackFor::kTraining ? training_ : inference_)[pack_layout(compute, format)];
}

}  // namespace jige::model
