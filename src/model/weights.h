// ModelWeights: the memory of a model's parameters on one device: f32 masters and gradients of what
// is trained, packed forms of every matrix, and the little that tasks read besides.
//
//   JIGE_TRY(auto weights, ModelWeights::create(arena, *model, {.compute = DType::kBF16}));
//   JIGE_DO(load_weights(weights, *stream, files));      // or initialise_weights(), init.h
//   per step: start_gradients; F, X and W of every micro-batch; finish_gradients; AdamW over
//   trainable(); pack
//
// Three ways to hold a model:
//   training       every parameter has an f32 value and gradient; packed for F and X
//   LoRA training  the adapters have them; the base is only packed (and its norms, biases and
//                  embedding table kept), as for inference; or quantised, one form for F and X
//   inference      nothing has a gradient; packed for F
// A tied head is packed from the embedding's table. Its gradient has memory of its own and is added
// to the table's by finish_gradients(): so bits do not depend on the split into micro-batches.
// Threads: one at a time; tasks may read block() from several streams while nothing changes, but
// one at a time where quantised matrices share a strip (BlockWeights::strip).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/tensor_folder.h"
#include "model/architecture.h"
#include "model/block.h"
#include "model/layer_range.h"
#include "model/node_streams.h"
#include "tensor/arena.h"

namespace jige::model {

struct WeightsOptions {
  DType compute = DType::kF32;       // f32 or bf16
  PackFor use = PackFor::kTraining;  // kInference: nothing is trained
  DType table_dtype = DType::kF32;   // of embedding tables that are not trained: as stored
  int64_t position_count = 0;        // rows of the rope table: the longest sequence; 0: no table
  bool gradients = true;             // false: training whose gradients are kept elsewhere
  // What only pack() reads of a trained parameter has no memory of its own: the value stands in
  // that of the gradient, between an update and the first gradient after it. The masters are kept
  // elsewhere, by shares of ranks. REQUIRES: gradients.
  bool values_in_gradients = false;
  // Of the matrices, where they are not trained: in inference, or under adapters.
  ops::WeightFormat format = ops::WeightFormat::kCompute;
  // Layers, ascending, that have no memory of their own: the host keeps them, and they take turns
  // in so many slots, each as large as the largest of them (layer_stream.h). Inference only.
  std::vector<int32_t> streamed_layers = {};
  int64_t slot_count = 0;
  int64_t slots() const { return std::min(slot_count, std::ssize(streamed_layers)); }
  // Of inference: the nodes that are held; the others have no memory and are not loaded.
  LayerRange held;
};

// Exact bytes of the arena that ModelWeights::create takes, by purpose.
struct WeightsMemory {
  int64_t values_bytes = 0;  // masters, or norms and tables where frozen
  int64_t gradients_bytes = 0;
  int64_t packed_bytes = 0;
  int64_t rope_bytes = 0;
  int64_t strip_bytes = 0;      // in which quantised matrices are turned back (BlockWeights::strip)
  int64_t slots_bytes = 0;      // of streamed layers
  int64_t streamed_bytes = 0;   // of the host's memory: these layers; no part of the total
  int64_t trainable_count = 0;  // parameters
  int64_t total_bytes() const {
    return values_bytes + gradients_bytes + packed_bytes + rope_bytes + strip_bytes + slots_bytes;
  }
};
WeightsMemory weights_memory(const Architecture& architecture, const WeightsOptions& options);

// A parameter with its memory; a tied one once, as the embedding's table.
struct NamedParam {
  const ParamSpec* spec = nullptr;
  TensorView value;  // f32
  TensorView grad;   // f32, empty where gradients are kept elsewhere
  size_t node = 0;   // of the graph
  size_t index = 0;  // among the node's parameters
  // Places of the value in packed matrices, for an optimizer that renews them with the value
  // (ModelWeights::pack_others does the rest); empty where only pack() does.
  std::vector<ops::PackPart> packs;
};

// What training changes under these options, in graph order, without memory. REQUIRES: the
// architecture outlives what is returned.
std::vector<NamedParam> trained_params(const Architecture& architecture,
                                       const WeightsOptions& options);

class ModelWeights {
 public:
  // Allocates; values are not set, gradients are zero. The architecture and the arena must outlive
  // the weights. Fails with kExhausted where the arena's cap is too small, kInvalidArgument on a
  // compute type other than f32 and bf16, and on quantised matrices that would be trained.
  static Result<ModelWeights> create(Arena& arena, const Architecture& architecture,
                                     const WeightsOptions& options);
  // The same with an arena for each node (the first one's holds the rope table too).
  static Result<ModelWeights> create(std::span<Arena* const> arenas,
                                     const Architecture& architecture,
                                     const WeightsOptions& options);

  const Architecture& architecture() const { return *architecture_; }
  const WeightsOptions& options() const { return options_; }
  // What the tasks of a node need; of a streamed layer, the first slot. REQUIRES: node <
  // architecture().node_count().
  const BlockWeights& block(size_t node) const { return blocks_[node]; }
  bool is_streamed(size_t node) const;
  std::span<const TensorView> slots() const { return slots_; }
  // A streamed layer as it is in one of the slots. REQUIRES: is_streamed(node), slot <
  // slots().size().
  BlockWeights in_slot(size_t node, size_t slot) const;
  // All gradients of a node as one piece of memory, f32; empty where it has none.
  const TensorView& gradient_memory(size_t node) const { return node_gradients_[node]; }
  // What an optimizer may change, in graph order; empty for inference.
  std::span<const NamedParam> trainable() const { return trainable_; }

  // The rows of a trained parameter whose gradients W computes from here on (Param::grad_rows);
  // null: all. They must live as long. REQUIRES: ParamSpec::by_rows, without adapters.
  void set_gradient_rows(const NamedParam& param, const std::vector<ops::RowRange>* rows);

  // Before the first micro-batch of a step whose tasks run with GradientUse::kStore: sets to zero
  // what those add to even then.
  void start_gradients(Stream& stream);
  // Before the first micro-batch of a step whose tasks all add.
  void zero_gradients(Stream& stream);
  // After the last one: adds a tied head's gradient to the table's.
  void finish_gradients(Stream& stream);
  // As Block::start_magnitudes. REQUIRES: the base is loaded.
  void start_magnitudes(const NodeStreams& streams);
  // Renews packed forms after values changed.
  void pack(const NodeStreams& streams);
  // The same for one node.
  void pack(Stream& stream, size_t node);
  // Renews what NamedParam::packs leave out, of all nodes or one.
  void pack_others(const NodeStreams& streams);
  void pack_others(Stream& stream, size_t node);

 private:
  ModelWeights(const Architecture& architecture, const WeightsOptions& options)
      : architecture_(&architecture), options_(options) {}
  Status allocate_slots(Arena& arena);
  Status allocate_block(Arena& arena, size_t node);
  void list_trainable();
  std::vector<ops::PackPart> packs_of(size_t node, size_t index) const;

  const Architecture* architecture_;
  WeightsOptions options_;
  std::vector<BlockWeights> blocks_;
  std::vector<NamedParam> trainable_;
  std::vector<Tensor> gradients_;  // one a block
  std::vector<TensorView> node_gradients_;
  std::vector<TensorView> slots_;
  std::vector<Tensor> others_;  // values, packed forms, rope table, slots
};

// Whether a folder holds every tensor of the model (adapters aside) with the type and shape it must
// have; worth asking before memory is allocated. Fails with kNotFound, kCorrupt or kUnsupported
// naming file, tensor, what is expected and what is there.
Status check_weights(const Architecture& architecture, const formats::TensorFolder& files);

// Who keeps layers that have no memory of their own, once each is loaded into the first slot.
class WeightsKeeper {
 public:
  virtual ~WeightsKeeper() = default;
  virtual void keep(Stream& stream, size_t node) = 0;
};

// Reads a folder's tensors into weights and packs them, after check_weights. Fails with kCorrupt on
// a tied head that is stored as well and is no copy of its table. Adapters are left
// alone; tensors that belong to no parameter are passed over (listed in the debug log). REQUIRES: a
// keeper where layers are streamed.
Status load_weights(ModelWeights& weights, const NodeStreams& streams,
                    const formats::TensorFolder& files, WeightsKeeper* keeper = nullptr);

// The stored type of a folder's embedding tables, for WeightsOptions::table_dtype; f32 where two
// differ. Fails as load_weights does when one is missing.
Result<DType> stored_table_dtype(const Architecture& architecture,
                                 const formats::TensorFolder& files);

}  // namespace jige::model
