// Losses without training: train/pipeline_executor.h.
#include <utility>

#include "model/weights_copy.h"
#include "train/pipeline_executor.h"

namespace jige::train {
namespace {

// Room for bytes, or none for none.
Result<Tensor> make_bytes(Arena& arena, int64_t bytes) {
  if (bytes == 0) return Tensor();
  return arena.make(DType::kU8, Shape{bytes});
}

}  // namespace

Status PipelineExecutor::evaluate(const HostBatch& batch, ExactSum& sum) {
  const plan::PipelineSchedule& schedule = machine_.schedule();
  const model::Architecture& architecture = weights_.architecture();
  std::vector<HostBatch> batches(static_cast<size_t>(schedule.micro_batch_count));
  batches.front() = batch;
  for (int32_t d = 0; d < schedule.device_count; ++d) machine_.device(d).load(batches, {});
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const Shape shape{tokens, architecture.stream_columns()};
  Tensor source;
  int32_t at = 0;  // the device of `source`
  for (int32_t b = 0; b < schedule.block_count; ++b) {
    const auto node = static_cast<size_t>(b);
    const int32_t home = places_->home(b);
    const int32_t here =
        schedule.tasks[static_cast<size_t>(passes_->pass(plan::TaskKind::kForward, b, 0))].device;
    LogicalDevice& device = machine_.device(here);
    Stream& stream = device.compute();
    if (b > 0 && here != at) {
      JIGE_TRY(Tensor arrived, device.arena().make(DType::kF32, shape));
      machine_.carry({.from = at,
                      .to = here,
                      .dst = arrived.view().data,
                      .src = source.view().data,
                      .bytes = shape.count() * 4});
      source = std::move(arrived);
    }
    at = here;
    Tensor copy;
    if (home < 0) {
      JIGE_TRY(copy, make_bytes(device.arena(),
                                model::copy_bytes(architecture, weights_.options(), node)));
      if (copy) model::copy_weights(stream, copy.view(), weights_, node, CopyKind::kHostToDevice);
    }
    model::BlockWeights seen =
        home >= 0 ? places_->at_home(b)
                  : model::copied_weights(architecture, weights_.options(), node, copy.view(), {});
    seen.rope_table = device.rope_table();
    const model::Block& block = architecture.block(node);
    JIGE_TRY(const Tensor saved,
             make_bytes(device.arena(), block.saved_bytes(tokens, weights_.options().compute)));
    const bool last = b + 1 == schedule.block_count;
    Tensor target;
    if (!last) {
      JIGE_TRY(target, device.arena().make(DType::kF32, shape));
    }
    block.forward(
        {.stream = stream, .compute = weights_.options().compute, .workspace = device.workspace()},
        seen, device.batch(0), source.view(), last ? device.losses(0) : target.view(),
        {.saved = saved.view()});
    stream.synchronize();
    source = std::move(target);
  }
  machine_.device(at).add_losses(0, sum);
  return {};
}

}  // namespace jige::train
