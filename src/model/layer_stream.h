// LayerStream: the weights of layers that are with the host, brought to the device when their turn
// is, through slots that these layers share (ModelWeights, WeightsOptions::streamed_layers).
//
//   copies    | layer 1 -> slot 0 | layer 3 -> slot 1 |  waits  | layer 5 -> slot 0 | …
//   computes                      | layer 1 | layer 2 |  waits  | layer 3 | layer 4 |  waits | …
//
// Every forward computes all layers in order, so copies are made in turns: turn t is of the layer
// t mod m of the m that are streamed, and goes to slot t mod K of K. Copies are put on a stream of
// their own, K turns ahead of the layer that computes, over the end of a forward as well.
//
// Invariants: (1) the copy of turn t begins behind the computation of turn t - K.
//             (2) the computation of a turn begins behind its copy, and reads its slot.
//             (3) copies are made in pieces, so that a small one of another stream waits for one of
//                 them at most, where one engine makes all copies to the device.
// Threads: one, that of the stream that computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/weights.h"
#include "tensor/host_buffer.h"

namespace jige::model {

// Copies in pieces of so many bytes at most, in stream order.
struct PieceCopy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  int64_t bytes = 0;
  int64_t piece_bytes = int64_t{16} << 20;
  CopyKind kind = CopyKind::kHostToDevice;
};
void copy_in_pieces(Stream& stream, const PieceCopy& copy);

class LayerStream final : public WeightsKeeper {
 public:
  // Takes the host's memory. The weights, which have such layers, and the device must outlive it.
  // Fails with kExhausted.
  static Result<std::unique_ptr<LayerStream>> create(const ModelWeights& weights, Device& device);

  // Keeps what the slot of a streamed layer holds, once its loading is done. Waits.
  void keep(Stream& stream, size_t node) override;
  // Fills the slots for the first forward, and measures how fast the last of them is filled. Waits.
  // REQUIRES: all layers are kept.
  void start();

  bool has(size_t node) const { return index_[node] >= 0; }
  // A layer's weights, for work that is put on `compute` next, which waits for their copy.
  // REQUIRES: has(node).
  const BlockWeights& use(Stream& compute, size_t node);
  // Behind that work: its slot takes the weights of a later turn. REQUIRES: use(node) was last.
  void done(Stream& compute, size_t node);

  int64_t layer_count() const { return static_cast<int64_t>(layers_.size()); }
  // What a forward copies, which the host's memory holds.
  int64_t bytes() const { return bytes_; }
  // 0 before start().
  double bytes_per_s() const { return bytes_per_s_; }

 private:
  struct Layer {
    int64_t bytes = 0;
    HostBuffer host;
    std::vector<BlockWeights> seen;  // by slot
  };
  struct Slot {
    TensorView memory;
    Event copied;
    int64_t turn = -1;  // that it holds, or will behind `copied`
  };
  explicit LayerStream(const ModelWeights& weights) : weights_(&weights) {}
  int64_t turn_of(size_t node) const { return first_turn_ + index_[node]; }
  Slot& slot_of(int64_t turn) { return slots_[static_cast<size_t>(turn) % slots_.size()]; }
  // Puts the copy of a turn on the stream of copies.
  void copy(int64_t turn);

  const ModelWeights* weights_;
  std::vector<int32_t> index_;  // by node, among the layers that are streamed; or -1
  std::vector<Layer> layers_;
  std::vector<Slot> slots_;
  int64_t first_turn_ = 0;  // of the forward
  int64_t bytes_ = 0;
  double bytes_per_s_ = 0;
  std::unique_ptr<Stream> copies_;  // last: it ends before what it copies
};

}  // namespace jige::model
