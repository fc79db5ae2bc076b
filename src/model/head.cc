#include "model/head.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

// How many logits a chunk has, and how many tokens.
struct ChunkLimits {
  int64_t logits_max;
  int64_t tokens_min;
  int64_t tokens_max;
  int64_t step;            // tokens are a multiple of it
  int64_t bf16_gradients;  // chunks whose gradients, in bf16, are collected
};

// A chunk's f32 logits stay near 32 MiB, so that they are read back from a cache where it is large,
// and the weight, read once a chunk, still meets enough rows to be worth it; 32 tokens are a chain
// of ops/linear.h.
constexpr ChunkLimits kCpuChunk = {int64_t{8} << 20, 128, 512, 32, 2};
// On a GPU a weight would take longer to read than such a chunk to multiply with it. So a chunk is
// 512 MiB of logits, and the gradient of the weight is read and written behind 1 GiB of theirs: of
// 150,000 tokens every 3,000 rows, for which the product takes three times as long. 128 rows are a
// tile of products.
constexpr ChunkLimits kGpuChunk = {int64_t{128} << 20, 128, 16384, 128, 4};

const ChunkLimits& chunk_limits(DeviceKind device) {
  return device == DeviceKind::kCpu ? kCpuChunk : kGpuChunk;
}

NormStats rows_of(const NormStats& stats, int64_t begin, int64_t end) {
  NormStats rows;
  if (stats.rstd) rows.rstd = stats.rstd.row_range(begin, end);
  if (stats.mean) rows.mean = stats.mean.row_range(begin, end);
  return rows;
}

TensorView rows_if_any(const TensorView& view, int64_t begin, int64_t end) {
  return view ? view.row_range(begin, end) : TensorView{};
}

}  // namespace

Head::Head(const formats::ModelConfig& config, const std::string& norm_name,
           const std::string& linear_name, const std::string& streams_name, DeviceKind device)
    : width_(config.hidden_size),
      vocab_size_(config.vocab_size),
      device_(device),
      logit_scale_(static_cast<float>(config.logits_scale / config.logits_divisor)),
      logit_cap_(config.logits_cap),
      layout_(config),
      has_norm_(config.norm_place != formats::NormPlace::kSum),
      norm_(config, norm_name, width_, config.norm_bias, params_) {
  if (config.altup.streams > 0) merge_.emplace(config, streams_name, device, params_);
  packed_ = PackedSizes(merge_ ? &*merge_ : nullptr);
  if (linear_name.empty()) return;
  linear_index_ = params_.size();
  linear_.emplace(ProjectionOptions{.parts = {{linear_name, vocab_size_}},
                                    .inputs = width_,
                                    .bias = config.head_bias,
                                    .device = device_},
                  params_);
  packed_ = PackedSizes(&*linear_, merge_ ? &*merge_ : nullptr);
}

int64_t Head::chunk_tokens() const {
  const ChunkLimits& limits = chunk_limits(device_);
  const int64_t tokens = limits.logits_max / vocab_size_ / limits.step * limits.step;
  return std::clamp(tokens, limits.tokens_min, limits.tokens_max);
}

int64_t Head::gradient_tokens(DType compute) const {
  const int64_t chunks = compute == DType::kF32 ? 1 : chunk_limits(device_).bf16_gradients;
  return chunks * chunk_tokens();
}

int64_t Head::packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const {
  return packed_.bytes(compute, use, format);
}

void Head::pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const {
  if (linear_) linear_->pack(stream, weights, compute, use);
  if (merge_) merge_->pack(stream, weights, compute, use);
}

void Head::list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                      std::vector<ops::PackPart>& packs) const {
  if (linear_) linear_->list_packs(weights, param, compute, use, packs);
  if (merge_) merge_->list_packs(weights, param, compute, use, packs);
}

int64_t Head::strip_bytes(DType compute) const {
  const int64_t bytes = linear_ ? linear_->strip_bytes(compute) : 0;
  return merge_ ? std::max(bytes, merge_->strip_bytes(compute)) : bytes;
}

Head::Saved Head::place_saved(Placement& at, int64_t token_count, DType compute) const {
  Saved saved;
  saved.stats = norm_.place_stats(at, token_count);
  if (merge_) saved.merge = merge_->place_saved(at, token_count, compute);
  return saved;
}

Head::Pending Head::place_pending(Placement& at, int64_t token_count, DType compute) const {
  Pending pending;
  pending.normed = at.take(compute, Shape{token_count, width_});
  if (merge_) pending.merge = merge_->place_pending(at, token_count, compute);
  return pending;
}

Head::Work Head::place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const {
  const int64_t chunk = std::min(chunk_tokens(), token_count);
  const int64_t gradient_chunk =
      use == PackFor::kTraining ? std::min(gradient_tokens(compute), token_count) : chunk;
  Work work;
  work.normed = at.take(compute, Shape{gradient_chunk, width_});
  work.logits = at.take(DType::kF32, Shape{chunk, vocab_size_});
  work.losses = at.take(DType::kF32, Shape{chunk});
  work.grad_logits = work.logits;
  if (use == PackFor::kTraining && compute != DType::kF32) {
    work.grad_logits = at.take(compute, Shape{gradient_chunk, vocab_size_});
  }
  const int64_t scratch_bytes = linear_->weight_scratch_bytes(gradient_chunk, compute);
  if (use == PackFor::kTraining && scratch_bytes > 0) {
    work.scratch = at.take(DType::kU8, Shape{scratch_bytes});
  }
  if (!merge_) return work;
  const bool training = use == PackFor::kTraining;
  work.merge = merge_->place_work(at, token_count, compute, training);
  if (training) work.grad_merged = at.take(DType::kF32, Shape{token_count, width_});
  return work;
}

int64_t Head::saved_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_saved(at, token_count, compute);
  return at.peak_bytes();
}

int64_t Head::pending_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_pending(at, token_count, compute);
  return at.peak_bytes();
}

int64_t Head::workspace_bytes(int64_t token_count, DType compute, PackFor use) const {
  if (!linear_) return logits_workspace_bytes(token_count, compute);
  Placement at;
  // What a loss without a backward saves nowhere else.
  if (merge_ && use == PackFor::kInference) place_saved(at, token_count, compute);
  place_work(at, token_count, compute, use);
  return at.peak_bytes();
}

int64_t Head::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                   bool frozen_base) const {
  int64_t bytes =
      merge_ ? merge_->thread_scratch_bytes(token_count, compute, threads, frozen_base) : 0;
  if (!linear_) return bytes;
  const int64_t rows = std::min(token_count, gradient_tokens(compute));
  return std::max(bytes, linear_->thread_scratch_bytes(rows, compute, threads, frozen_base));
}

int64_t Head::logits_workspace_bytes(int64_t row_count, DType compute) const {
  Placement at;
  if (linear_) at.take(compute, Shape{row_count, width_});
  if (merge_) {
    merge_->place_saved(at, row_count, compute);
    merge_->place_work(at, row_count, compute, false);
  }
  return at.peak_bytes();
}

double Head::forward_flops(double token_count, double) const {
  const double streams = merge_ ? merge_->forward_flops(token_count) : 0;
  if (!linear_) return streams;
  return streams +
         2.0 * token_count * static_cast<double>(width_) * static_cast<double>(vocab_size_);
}

void Head::forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                   const TensorView& src, const TensorView& dst, const BlockMemory& memory) const {
  run_chunks(context, weights, batch, src, {.losses = dst}, memory);
}

void Head::backward_input(const BlockContext& context, const BlockWeights& weights,
                          const Batch& batch, const TensorView& src, const TensorView&,
                          const TensorView& grad_src, const BlockMemory& memory) const {
  run_chunks(context, weights, batch, src, {.grad_src = grad_src, .input_gradient = true}, memory);
}

void Head::backward_weight(const BlockContext& context, const BlockWeights& weights,
                           const Batch& batch, const TensorView& src,
                           const BlockMemory& memory) const {
  run_chunks(context, weights, batch, src, {.weight_gradient = true}, memory);
}

void Head::forward_backward(const BlockContext& context, const BlockWeights& weights,
                            const Batch& batch, const TensorView& src, const TensorView& losses,
                            const TensorView& grad_src, const BlockMemory& memory,
                            HeadPass pass) const {
  run_chunks(context, weights, batch, src,
             {.losses = losses,
              .grad_src = grad_src,
              .input_gradient = true,
              .weight_gradient = pass == HeadPass::kAll},
             memory);
}

void Head::scale_logits(Stream& stream, const TensorView& logits) const {
  if (logit_scale_ != 1.0f) ops::scale(stream, logits, logits, logit_scale_);
}

void Head::start_key_gradients(Stream& stream, const TensorView& grad_src) const {
  for (const bool window : {false, true}) {
    const TensorView keys = layout_.keys(grad_src, window);
    if (keys.columns() > 0) ops::zero(stream, keys);
  }
}

void Head::run_losses(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const Outputs& outputs, const Work& work, int64_t begin,
                      const TensorView& normed, const TensorView& grad_logits) const {
  Stream& stream = context.stream;
  const int64_t end = begin + normed.rows();
  for (int64_t first = begin; first < end; first += chunk_tokens()) {
    const int64_t last = std::min(first + chunk_tokens(), end);
    const TensorView logits = work.logits.row_range(0, last - first);
    linear_->forward(stream, weights, context.compute,
                     {.dst = logits, .src = normed.row_range(first - begin, last - begin)});
    scale_logits(stream, logits);
    ops::cross_entropy(stream,
                       {.loss = outputs.losses ? outputs.losses.row_range(first, last)
                                               : work.losses.row_range(0, last - first),
                        .logits = logits,
                        .targets = batch.targets.row_range(first, last),
                        .weights = rows_if_any(batch.loss_weights, first, last),
                        .cap = logit_cap_,
                        .grad_logits = rows_if_any(grad_logits, first - begin, last - begin)});
  }
}

void Head::run_chunks(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& whole_src, const Outputs& outputs,
                      const BlockMemory& memory) const {
  JIGE_CHECK(linear_, "a head of the final norm alone has no loss");
  Stream& stream = context.stream;
  if (outputs.input_gradient) start_key_gradients(stream, outputs.grad_src);
  const DType compute = context.compute;
  const int64_t t = batch.token_count();
  const bool gradient = outputs.input_gradient || outputs.weight_gradient;
  const bool linear_gradient = outputs.weight_gradient && linear_->wants_gradient(weights);
  Placement kept(memory.saved);
  Placement left(memory.pending);
  Placement workspace(context.workspace);
  Saved saved;
  if (merge_ || memory.saved) saved = place_saved(memory.saved ? kept : workspace, t, compute);
  const NormStats stats = memory.saved ? saved.stats : NormStats{};
  const Pending pending = gradient ? place_pending(left, t, compute) : Pending{};
  const TensorView& grad_normed = pending.normed;
  const Work work =
      place_work(workspace, t, compute, gradient ? PackFor::kTraining : PackFor::kInference);
  // F comes first.
  if (merge_ && outputs.losses) {
    merge_->forward(stream, weights, compute, whole_src, saved.merge, work.merge);
  }
  const TensorView src = merge_ ? saved.merge.merged : layout_.residual(whole_src);
  const TensorView grad_src = merge_ ? work.grad_merged : layout_.residual(outputs.grad_src);

  const bool needs_logits = outputs.losses || outputs.input_gradient || linear_gradient;
  const int64_t step = gradient ? gradient_tokens(compute) : chunk_tokens();
  for (int64_t begin = 0; needs_logits && begin < t; begin += step) {
    const int64_t end = std::min(begin + step, t);
    const TensorView normed = work.normed.row_range(0, end - begin);
    const TensorView grad_logits = work.grad_logits.row_range(0, end - begin);
    const TensorView rows = src.row_range(begin, end);
    norm_.forward(stream, weights, normed, rows, rows_of(stats, begin, end));
    run_losses(context, weights, batch, outputs, work, begin, normed,
               gradient ? grad_logits : TensorView{});
    if (gradient) scale_logits(stream, grad_logits);
    if (outputs.input_gradient) {
      const TensorView grad_rows = grad_normed.row_range(begin, end);
      linear_->backward_input(stream, weights, compute,
                              {.grad_src = grad_rows, .grad_dst = grad_logits});
      norm_.backward_input(stream, weights, grad_src.row_range(begin, end), grad_rows, rows,
                           rows_of(stats, begin, end), false);
    }
    if (linear_gradient) {
      linear_->backward_weight(stream, weights, compute,
                               {.grad_dst = grad_logits,
                                .src = normed,
                                .scratch = work.scratch,
                                .gradients = begin == 0 ? context.gradients : GradientUse::kAdd});
    }
  }
  if (outputs.weight_gradient) norm_.backward_weight(stream, weights, grad_normed, src, stats);
  if (!merge_) return;
  if (outputs.input_gradient) {
    merge_->backward_input(stream, weights, compute, outputs.grad_src, grad_src, whole_src,
                           saved.merge, pending.merge, work.merge);
  }
  if (outputs.weight_gradient) {
    merge_->backward_weight(stream, weights, compute, context.gradients, saved.merge, pending.merge,
                            work.merge);
  }
}

TensorView Head::norm_source(const BlockContext& context, const BlockWeights& weights,
                             Placement& at, const TensorView& src) const {
  if (!merge_) return src;
  const StreamMerge::Saved saved = merge_->place_saved(at, src.rows(), context.compute);
  const StreamMerge::Work work = merge_->place_work(at, src.rows(), context.compute, false);
  merge_->forward(context.stream, weights, context.compute, src, saved, work);
  return saved.merged;
}

void Head::logits(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
                  const TensorView& dst) const {
  JIGE_CHECK(linear_, "a head of the final norm alone has no logits");
  Placement workspace(context.workspace);
  const TensorView normed = workspace.take(context.compute, Shape{src.rows(), width_});
  const TensorView rows = norm_source(context, weights, workspace, src);
  norm_.forward(context.stream, weights, normed, rows, {});
  linear_->forward(context.stream, weights, context.compute, {.dst = dst, .src = normed});
  scale_logits(context.stream, dst);
  if (logit_cap_ > 0) ops::soft_cap(context.stream, dst, logit_cap_);
}

void Head::normed(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
                  const TensorView& dst) const {
  if (!has_norm_) return ops::scale(context.stream, dst, src, 1.0f);
  Placement workspace(context.workspace);
  norm_.forward(context.stream, weights, dst, norm_source(context, weights, workspace, src), {});
}

}  // namespace jige::model
