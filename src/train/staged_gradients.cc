#include "train/staged_gradients.h"

#include <algorithm>
#include <utility>

namespace jige::train {
namespace {

// Goes to the GPU while the next one arrives.
constexpr int64_t kPieceElements = int64_t{1} << 21;

}  // namespace

StagedGradients::StagedGradients(const model::ModelWeights& weights)
    : weights_(weights), taken_(weights.architecture().node_count()) {}

Result<std::unique_ptr<GradientCarrier>> StagedGradients::make(Device& device,
                                                               const model::ModelWeights& weights) {
  std::unique_ptr<StagedGradients> staged(new StagedGradients(weights));
  for (size_t node = 0; node < staged->taken_.size(); ++node) {
    const TensorView& gradients = weights.gradient_memory(node);
    HostBuffer buffer;
    if (gradients) {
      JIGE_TRY(buffer, HostBuffer::make(device, gradients.count() * 4));
    }
    staged->buffers_.push_back(std::move(buffer));
  }
  for (auto* stream : {&staged->fetches_, &staged->stores_, &staged->arrivals_}) {
    JIGE_TRY(*stream, device.make_stream());
  }
  return staged;
}

std::span<std::byte> StagedGradients::memory(size_t node) const {
  const TensorView& gradients = weights_.gradient_memory(node);
  if (!gradients) return {};
  return {static_cast<std::byte*>(buffers_[node].data()),
          static_cast<size_t>(gradients.count()) * 4};
}

void StagedGradients::restart() {
  const std::lock_guard lock(mutex_);
  std::ranges::fill(taken_, std::nullopt);
}

void StagedGradients::copy(Stream& stream, const NodePart& part, CopyKind kind) const {
  if (part.elements.count == 0) return;
  float* const gpu =
      static_cast<float*>(weights_.gradient_memory(part.node).data) + part.elements.begin;
  float* const host = static_cast<float*>(buffers_[part.node].data()) + part.elements.begin;
  const bool fetches = kind == CopyKind::kDeviceToHost;
  stream.copy(fetches ? host : gpu, fetches ? gpu : host, part.elements.count * 4, kind);
}

Status StagedGradients::noted(Status status) {
  if (status) return status;
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = status.error();
  }
  changed_.notify_all();
  return status;
}

Status StagedGradients::fetch(Stream& compute, const NodePart& part,
                              std::function<Status()> go_on) {
  fetches_->wait(compute.record());
  copy(*fetches_, part, CopyKind::kDeviceToHost);
  fetched_.put([this, there = fetches_->record(), go_on = std::move(go_on)] {
    there.wait();
    return noted(go_on());
  });
  return {};
}

void StagedGradients::store(Stream& compute, const NodePart& part) {
  copy(*stores_, part, CopyKind::kHostToDevice);
  compute.wait(stores_->record());
}

void StagedGradients::expect(const NodePart& part, GradientArrival arrival) {
  expected_.put([this, part, arrival = std::move(arrival)] { return noted(take(part, arrival)); });
}

Status StagedGradients::take(const NodePart& part, const GradientArrival& arrival) {
  const ElementRange& all = part.elements;
  for (int64_t begin = all.begin; begin < all.end(); begin += kPieceElements) {
    const ElementRange piece{begin, std::min(kPieceElements, all.end() - begin)};
    JIGE_DO(arrival.part(piece));
    copy(*arrivals_, {part.node, piece}, CopyKind::kHostToDevice);
  }
  JIGE_DO(arrival.all());
  {
    const std::lock_guard lock(mutex_);
    taken_[part.node] = arrivals_->record();
  }
  changed_.notify_all();
  return {};
}

Status StagedGradients::await_part(Stream& compute, size_t node, const ElementRange&) {
  return await_all(compute, node);
}

Status StagedGradients::await_all(Stream& compute, size_t node) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return taken_[node] || error_; });
  if (error_) return tl::unexpected<Error>(*error_);
  compute.wait(*taken_[node]);
  return {};
}

int64_t staged_bytes(const model::WeightsMemory& memory) { return memory.gradients_bytes; }

}  // namespace jige::train
