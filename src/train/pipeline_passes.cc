#include "train/pipeline_passes.h"

#include <algorithm>

#include "base/check.h"

namespace jige::train {
namespace {

using plan::BufferKind;
using plan::PipelineTask;
using plan::TaskKind;

}  // namespace

int64_t PassRunner::boundary_bytes() const {
  return whole_lines(world_.micro_batch_tokens * world_.architecture.stream_columns() * 4);
}

TensorView PassRunner::rows(const TensorView& buffer, int64_t offset, int64_t token_count) const {
  if (!buffer) return {};
  const Shape shape{token_count, world_.architecture.stream_columns()};
  return TensorView::of(static_cast<std::byte*>(buffer.data) + offset, DType::kF32, shape);
}

model::BlockContext PassRunner::context(LogicalDevice& device) const {
  return {.stream = device.compute(), .compute = world_.compute, .workspace = device.workspace()};
}

model::BlockWeights PassRunner::weights(LogicalDevice& device, int32_t task, int32_t block) const {
  model::BlockWeights weights = world_.weights.of_pass(task, block);
  weights.rope_table = device.rope_table();
  return weights;
}

int32_t PassRunner::keeper(const PipelineTask& task) const {
  const TaskKind kind = world_.schedule.recompute ? TaskKind::kRecompute : TaskKind::kForward;
  return world_.passes.pass(kind, task.blocks.begin, task.micro_batch);
}

TensorView PassRunner::forward_output(int32_t task) const {
  const int32_t end = at(task).blocks.end;
  if (end == world_.schedule.block_count) return {};
  if (const TensorView sent = world_.memory.view(BufferKind::kBoundary, task, end)) return sent;
  const int32_t next = world_.passes.pass(TaskKind::kForward, end, at(task).micro_batch);
  return world_.memory.view(BufferKind::kBoundary, next, end);
}

// The boundary in front of a backward stage, on its device; block 0 has token ids instead.
TensorView PassRunner::stage_source(int32_t block, int32_t micro_batch) const {
  if (block == 0) return {};
  const int32_t forward = world_.passes.pass(TaskKind::kForward, block, micro_batch);
  if (!world_.schedule.recompute) return world_.memory.view(BufferKind::kBoundary, forward, block);
  const int32_t again = world_.passes.pass(TaskKind::kRecompute, block, micro_batch);
  const int32_t owner = at(again).device == at(forward).device ? forward : again;
  return world_.memory.view(BufferKind::kBoundary, owner, block);
}

TensorView PassRunner::gradient_in(int32_t task) const {
  return world_.memory.view(BufferKind::kBoundaryGradient, task, at(task).blocks.end);
}

TensorView PassRunner::gradient_out(int32_t task) const {
  const int32_t begin = at(task).blocks.begin;
  if (begin == 0) return {};
  const TensorView sent = world_.memory.view(BufferKind::kBoundaryGradient, task, begin);
  if (sent) return sent;
  const int32_t next =
      world_.passes.pass(TaskKind::kBackwardInput, begin - 1, at(task).micro_batch);
  return world_.memory.view(BufferKind::kBoundaryGradient, next, begin);
}

// The input of a block of the stage: kept in the saved buffer, but for the first.
TensorView PassRunner::source_of(const PipelineTask& task, int32_t block,
                                 int64_t token_count) const {
  const int32_t begin = task.blocks.begin;
  if (block == begin) return rows(stage_source(begin, task.micro_batch), 0, token_count);
  const TensorView saved = world_.memory.view(BufferKind::kSaved, keeper(task), begin);
  return rows(saved, (block - begin - 1) * boundary_bytes(), token_count);
}

TensorView PassRunner::saved_of(int32_t keeper, int32_t block) const {
  const plan::BlockRange blocks = at(keeper).blocks;
  const auto bytes = [&](int32_t b) {
    return whole_lines(world_.architecture.block(static_cast<size_t>(b))
                           .saved_bytes(world_.micro_batch_tokens, world_.compute));
  };
  if (bytes(block) == 0) return {};
  int64_t offset = (blocks.size() - 1) * boundary_bytes();
  for (int32_t b = blocks.begin; b < block; ++b) offset += bytes(b);
  return world_.memory.view(BufferKind::kSaved, keeper, blocks.begin)
      .row_range(offset, offset + bytes(block));
}

TensorView PassRunner::pending_of(const PipelineTask& task, int32_t block) const {
  const auto bytes = [&](int32_t b) {
    return whole_lines(world_.architecture.block(static_cast<size_t>(b))
                           .pending_bytes(world_.micro_batch_tokens, world_.compute));
  };
  if (bytes(block) == 0) return {};
  const int32_t begin = task.blocks.begin;
  const int32_t input = world_.passes.pass(TaskKind::kBackwardInput, begin, task.micro_batch);
  int64_t offset = task.blocks.size() > 1 ? boundary_bytes() : 0;
  for (int32_t b = begin; b < block; ++b) offset += bytes(b);
  return world_.memory.view(BufferKind::kPending, input, begin)
      .row_range(offset, offset + bytes(block));
}

void PassRunner::run(LogicalDevice& device, int32_t task) const {
  switch (at(task).kind) {
    case TaskKind::kForward:
      forward(device, task);
      break;
    case TaskKind::kRecompute:
      recompute(device, task);
      break;
    case TaskKind::kBackwardInput:
      backward_input(device, task);
      break;
    default:
      JIGE_CHECK(at(task).kind == TaskKind::kBackwardWeight, "{} is no pass",
                 plan::describe_task(world_.schedule, task));
      backward_weight(device, task);
  }
  device.compute().synchronize();
}

// Without recomputation F keeps what X and W need; with it, boundaries that are checkpoints have
// buffers of their own and everything else shares the transient one.
void PassRunner::forward(LogicalDevice& device, int32_t task) const {
  const PipelineTask& f = at(task);
  const model::Batch& batch = device.batch(f.micro_batch);
  const int64_t t = batch.token_count();
  if (t == 0) return;
  const TensorView transient = world_.memory.view(BufferKind::kTransient, task, f.blocks.begin);
  const int64_t slots = std::min(f.blocks.size() - 1, 2);
  TensorView src = rows(world_.memory.view(BufferKind::kBoundary, task, f.blocks.begin), 0, t);
  for (int32_t b = f.blocks.begin; b < f.blocks.end && b != head(); ++b) {
    TensorView dst;
    if (b + 1 == f.blocks.end) {
      dst = rows(forward_output(task), 0, t);
    } else if (!world_.schedule.recompute) {
      dst = source_of(f, b + 1, t);
    } else if (const TensorView kept = world_.memory.view(BufferKind::kBoundary, task, b + 1)) {
      dst = rows(kept, 0, t);
    } else {
      dst = rows(transient, (b - f.blocks.begin) % 2 * boundary_bytes(), t);
    }
    const model::Block& block = world_.architecture.block(static_cast<size_t>(b));
    TensorView saved;
    if (!world_.schedule.recompute) {
      saved = saved_of(task, b);
    } else if (const int64_t bytes = block.saved_bytes(world_.micro_batch_tokens, world_.compute);
               bytes > 0) {
      const int64_t begin = slots * boundary_bytes();
      saved = transient.row_range(begin, begin + whole_lines(bytes));
    }
    block.forward(context(device), weights(device, task, b), batch, src, dst, {.saved = saved});
    src = dst;
  }
}

void PassRunner::recompute(LogicalDevice& device, int32_t task) const {
  const PipelineTask& r = at(task);
  const model::Batch& batch = device.batch(r.micro_batch);
  const int64_t t = batch.token_count();
  if (t == 0) return;
  for (int32_t b = r.blocks.begin; b < r.blocks.end && b != head(); ++b) {
    const TensorView dst =
        b + 1 < r.blocks.end
            ? source_of(r, b + 1, t)
            : rows(world_.memory.view(BufferKind::kTransient, task, r.blocks.begin), 0, t);
    world_.architecture.block(static_cast<size_t>(b))
        .forward(context(device), weights(device, task, b), batch, source_of(r, b, t), dst,
                 {.saved = saved_of(task, b)});
  }
}

bool PassRunner::weight_follows(int32_t input) const {
  const PipelineTask& x = at(input);
  const int32_t weight =
      world_.passes.pass(TaskKind::kBackwardWeight, x.blocks.begin, x.micro_batch);
  return world_.graph.position(weight) == world_.graph.position(input) + 1;
}

bool PassRunner::makes_losses(int32_t task) const {
  return at(task).kind == TaskKind::kBackwardInput && at(task).blocks.contains(head());
}

void PassRunner::add_expert_use(LogicalDevice& device, int32_t task, ExpertMeter& meter) const {
  const PipelineTask& x = at(task);
  const model::Batch& batch = device.batch(x.micro_batch);
  if (x.kind != TaskKind::kBackwardInput || batch.token_count() == 0) return;
  for (int32_t b = x.blocks.begin; b < x.blocks.end; ++b) {
    meter.add(device.compute(), batch,
              {.node = static_cast<size_t>(b),
               .saved = saved_of(keeper(x), b),
               .compute = world_.compute});
  }
}

void PassRunner::backward_input(LogicalDevice& device, int32_t task) const {
  const PipelineTask& x = at(task);
  if (x.micro_batch == 0) {
    const TensorView gradients = world_.weights.gradient_buffer(x.blocks.begin);
    if (gradients) device.compute().fill_zero(gradients.data, gradients.count());
  }
  const model::Batch& batch = device.batch(x.micro_batch);
  const int64_t t = batch.token_count();
  if (t == 0) return;
  const TensorView inner =
      rows(world_.memory.view(BufferKind::kPending, task, x.blocks.begin), 0, t);
  TensorView grad_dst = rows(gradient_in(task), 0, t);
  for (int32_t b = x.blocks.end - 1; b >= x.blocks.begin; --b) {
    const TensorView grad_src = b > x.blocks.begin ? inner : rows(gradient_out(task), 0, t);
    const model::BlockMemory memory{.saved = saved_of(keeper(x), b), .pending = pending_of(x, b)};
    const model::BlockWeights seen = weights(device, task, b);
    const TensorView src = source_of(x, b, t);
    if (b == head()) {
      const model::Head& last = world_.architecture.head();
      last.forward_backward(
          context(device), seen, batch, src, device.losses(x.micro_batch), grad_src, memory,
          weight_follows(task) ? model::HeadPass::kAll : model::HeadPass::kForwardAndInput);
    } else {
      world_.architecture.block(static_cast<size_t>(b))
          .backward_input(context(device), seen, batch, src, grad_dst, grad_src, memory);
    }
    grad_dst = grad_src;
  }
}

void PassRunner::backward_weight(LogicalDevice& device, int32_t task) const {
  const PipelineTask& w = at(task);
  const model::Batch& batch = device.batch(w.micro_batch);
  const int64_t t = batch.token_count();
  if (t == 0) return;
  const int32_t input = world_.passes.pass(TaskKind::kBackwardInput, w.blocks.begin, w.micro_batch);
  for (int32_t b = w.blocks.end - 1; b >= w.blocks.begin; --b) {
    if (b == head() && weight_follows(input)) continue;  // done by X
    world_.architecture.block(static_cast<size_t>(b))
        .backward_weight(context(device), weights(device, task, b), batch, source_of(w, b, t),
                         {.saved = saved_of(keeper(w), b), .pending = pending_of(w, b)});
  }
}

PassRunner::Message PassRunner::message(int32_t send) const {
  const PipelineTask& task = at(send);
  const int32_t b = task.blocks.begin;
  const int32_t m = task.micro_batch;
  const auto pass = [&](TaskKind kind, int32_t block) {
    return world_.passes.pass(kind, block, m);
  };
  const auto view = [&](BufferKind kind, int32_t user) {
    return world_.memory.view(kind, user, b);
  };
  switch (task.kind) {
    case TaskKind::kSendActivation:
      return {view(BufferKind::kBoundary, pass(TaskKind::kForward, b - 1)),
              view(BufferKind::kBoundary, pass(TaskKind::kForward, b))};
    case TaskKind::kSendGradient:
      return {view(BufferKind::kBoundaryGradient, pass(TaskKind::kBackwardInput, b)),
              view(BufferKind::kBoundaryGradient, pass(TaskKind::kBackwardInput, b - 1))};
    default:
      return {view(BufferKind::kBoundary, pass(TaskKind::kForward, b)),
              view(BufferKind::kBoundary, pass(TaskKind::kRecompute, b))};
  }
}

}  // namespace jige::train
