#include "train/logical_device.h"

#include <algorithm>

#include "base/check.h"
#include "model/placement.h"
#include "model/rope_table.h"

namespace jige::train {
namespace {

constexpr int64_t kColumns = 4;  // of a micro-batch's ids

struct WorkspaceParts {
  TensorView scratch, rope_table, losses, ids;
};

WorkspaceParts place_workspace(model::Placement& at, const model::Architecture& architecture,
                               DType compute, const DeviceBatches& batches) {
  int64_t scratch = 0;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    scratch =
        std::max(scratch, architecture.block(node).workspace_bytes(
                              batches.micro_batch_tokens, compute, model::PackFor::kTraining));
  }
  WorkspaceParts parts;
  parts.scratch = at.take(DType::kU8, Shape{scratch});
  if (architecture.rope_columns() > 0) {
    parts.rope_table =
        at.take(DType::kF32, Shape{batches.position_count, architecture.rope_columns()});
  }
  parts.losses = at.take(DType::kF32, Shape{batches.micro_batch_tokens});
  parts.ids =
      at.take(DType::kI32, Shape{kColumns * batches.micro_batches, batches.micro_batch_tokens});
  return parts;
}

}  // namespace

int64_t device_workspace_bytes(const model::Architecture& architecture, DType compute,
                               const DeviceBatches& batches) {
  model::Placement measure;
  place_workspace(measure, architecture, compute, batches);
  return measure.peak_bytes();
}

Result<std::unique_ptr<LogicalDevice>> LogicalDevice::create(const LogicalDeviceOptions& options) {
  std::unique_ptr<LogicalDevice> device(new LogicalDevice());
  const auto make_cpu = [&](const char* what, int threads) {
    return std::make_unique<CpuDevice>(
        CpuDeviceOptions{.name = options.name + what, .thread_count = threads});
  };
  if (!options.gpu) {
    device->cpu_ = make_cpu("", options.compute_threads);
    device->copies_ = make_cpu(" copies", 1);
  }
  device->host_ = make_cpu(" optimizer", options.optimizer_threads);
  Device& computes = options.gpu ? *options.gpu : *device->cpu_;
  Device& copies = options.gpu ? *options.gpu : *device->copies_;
  device->arena_ = std::make_unique<Arena>(computes, options.name, options.capacity_bytes);
  JIGE_TRY(device->compute_, computes.make_stream());
  JIGE_TRY(device->fetch_, copies.make_stream());
  JIGE_TRY(device->offload_, copies.make_stream());
  JIGE_TRY(device->send_, copies.make_stream());
  JIGE_TRY(device->optimizer_, device->host_->make_stream());
  return device;
}

void LogicalDevice::use_workspace(const model::Architecture& architecture, DType compute,
                                  const DeviceBatches& batches, const TensorView& buffer) {
  model::Placement at(buffer);
  const WorkspaceParts parts = place_workspace(at, architecture, compute, batches);
  workspace_ = parts.scratch;
  rope_table_ = parts.rope_table;
  losses_ = parts.losses;
  ids_ = parts.ids;
  batches_.resize(static_cast<size_t>(batches.micro_batches));
  if (!rope_table_) return;
  const std::vector<float> table =
      model::make_rope_table(architecture.config(), batches.position_count);
  compute_->copy(rope_table_.data, table.data(), static_cast<int64_t>(table.size() * 4),
                 CopyKind::kHostToDevice);
  compute_->synchronize();
}

int64_t LogicalDevice::token_count(int32_t m) const { return batch(m).token_count(); }

void LogicalDevice::load(std::span<const HostBatch> batches, const BatchTerms& terms) {
  JIGE_CHECK(batches.size() == batches_.size(), "{} micro-batches for {}", batches.size(),
             batches_.size());
  BatchTerms of_batch = terms;
  for (size_t m = 0; m < batches.size(); ++m) {
    const auto column = [&](int64_t c, DType dtype) {
      const int64_t row = kColumns * static_cast<int64_t>(m) + c;
      return TensorView::of(ids_.row_range(row, row + 1).data, dtype, Shape{ids_.columns()});
    };
    loader_.load(*compute_,
                 {.tokens = column(0, DType::kI32),
                  .positions = column(1, DType::kI32),
                  .targets = column(2, DType::kI32),
                  .loss_weights = column(3, DType::kF32)},
                 batches[m], of_batch, batches_[m]);
    of_batch.dropout.token_begin += batches_[m].token_count();
  }
}

void LogicalDevice::add_losses(int32_t m, ExactSum& sum) {
  loader_.add_losses(*compute_, losses(m), sum);
}

}  // namespace jige::train
