#include "model/layer_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "model/weights_copy.h"

namespace jige::model {

void copy_in_pieces(Stream& stream, const PieceCopy& copy) {
  for (int64_t begin = 0; begin < copy.bytes; begin += copy.piece_bytes) {
    stream.copy(copy.dst + begin, copy.src + begin, std::min(copy.piece_bytes, copy.bytes - begin),
                copy.kind);
  }
}

Result<std::unique_ptr<LayerStream>> LayerStream::create(const ModelWeights& weights,
                                                         Device& device) {
  const Architecture& architecture = weights.architecture();
  const WeightsOptions& options = weights.options();
  std::unique_ptr<LayerStream> made(new LayerStream(weights));
  made->index_.assign(architecture.node_count(), -1);
  for (const TensorView& memory : weights.slots()) made->slots_.push_back({.memory = memory});
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    if (!weights.is_streamed(node)) continue;
    made->index_[node] = static_cast<int32_t>(made->layers_.size());
    Layer layer{.bytes = copy_bytes(architecture, options, node)};
    JIGE_TRY(layer.host, HostBuffer::make(device, layer.bytes));
    for (size_t slot = 0; slot < made->slots_.size(); ++slot) {
      layer.seen.push_back(weights.in_slot(node, slot));
    }
    made->bytes_ += layer.bytes;
    made->layers_.push_back(std::move(layer));
  }
  JIGE_CHECK(!made->layers_.empty(), "a stream of no layers");
  JIGE_TRY(made->copies_, device.make_stream());
  return made;
}

void LayerStream::keep(Stream& stream, size_t node) {
  const Layer& layer = layers_[static_cast<size_t>(index_[node])];
  copy_in_pieces(stream, {.dst = static_cast<std::byte*>(layer.host.data()),
                          .src = slots_.front().memory.as<std::byte>(),
                          .bytes = layer.bytes,
                          .kind = CopyKind::kDeviceToHost});
  stream.synchronize();
}

void LayerStream::copy(int64_t turn) {
  const Layer& layer = layers_[static_cast<size_t>(turn) % layers_.size()];
  Slot& slot = slot_of(turn);
  copy_in_pieces(*copies_, {.dst = slot.memory.as<std::byte>(),
                            .src = static_cast<const std::byte*>(layer.host.data()),
                            .bytes = layer.bytes});
  slot.copied = copies_->record();
  slot.turn = turn;
}

void LayerStream::start() {
  const auto count = static_cast<int64_t>(slots_.size());
  for (int64_t turn = 0; turn < count; ++turn) {
    const StopWatch watch;
    copy(turn);
    copies_->synchronize();
    const Layer& layer = layers_[static_cast<size_t>(turn) % layers_.size()];
    constexpr double kSecondsMin = 1e-9;
    bytes_per_s_ = static_cast<double>(layer.bytes) / std::max(kSecondsMin, watch.seconds());
  }
}

const BlockWeights& LayerStream::use(Stream& compute, size_t node) {
  const int64_t turn = turn_of(node);
  const Slot& slot = slot_of(turn);
  // What is only recorded is told where the weights will be.
  if (!compute.records_only()) {
    JIGE_CHECK(slot.turn == turn, "turn {} where turn {} is to compute", slot.turn, turn);
    compute.wait(slot.copied);
  }
  return layers_[static_cast<size_t>(index_[node])].seen[static_cast<size_t>(turn) % slots_.size()];
}

void LayerStream::done(Stream& compute, size_t node) {
  if (compute.records_only()) return;
  const int64_t turn = turn_of(node);
  copies_->wait(compute.record());
  copy(turn + static_cast<int64_t>(slots_.size()));
  const bool last = index_[node] + 1 == std::ssize(layers_);
  if (last) first_turn_ += std::ssize(layers_);
}

}  // namespace jige::model
