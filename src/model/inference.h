// InferenceModel: a model folder loaded on one device, ready to run batches of sequences over a
// paged key/value cache.
//
//   JIGE_TRY(auto model, InferenceModel::load(folder, device, {.context_max = 4096}));
//   JIGE_TRY(const auto logits, model->forward({.tokens = …, .sequences = …, .logit_rows = …}));
//
// One call runs prompt chunks and single-token decodes of many sequences together. Whoever calls
// owns the blocks: each sequence names the cache blocks of its positions, and its tokens stand in
// them after the call. A sequence's logits are the same bits whatever runs beside it and however
// its prompt was cut.
// A model with recurrent layers has states beside the cache (model/delta_attention.h,
// model/short_conv.h), which go forward alone: each sequence in the making has one of its own,
// named by SequenceSpan::state, and gives tokens from where that stands, or from its first on.
// Where some rows are guesses, SequenceSpan::spare keeps the state as it is before them; what
// follows may run tokens again that the cache has already, which get the same keys and values.
// Sequences may each ask for an adapter (adapter.h): all rows run through the base together, and
// those of an adapter get its products besides, so one batch serves many of them. More may come and
// go in rooms that were taken at load (adapter_rooms.h), while forward() runs, too.
// A row may be given in place of a token's embedding, such as those of an image; what comes behind
// the embedding is the same for all rows. Given rows of a sequence may see one another, those
// behind them, too (InferenceBatch::mutual), where all that are not in the cache come in one
// forward.
// Where a model turns heads by places of images, their rows and what follows them have other angles
// than their index gives (image_places.h).
// Where a device is too small, some layers' weights are with the host and come in every forward
// (layer_stream.h); the bits are the same.
// A model that looks ahead (ModelConfig) keeps nothing of what has run: its sequences run whole.
// Memory is fixed at load (memory_plan.h gives its size beforehand); forward() allocates no tensor.
// A model may hold some of its layers alone. Where it holds the first ones and the ends, others
// compute the rest (layers_beyond.h) and nobody who calls sees a difference; what holds layers in
// the middle gives run_layers() alone. A GPU's rows go and come through pinned memory of the host.
// While the rows of a forward are elsewhere, others may be begun: begin() and finish() are the
// halves of a forward.
// Threads: one at a time, but for has_adapter() and what adapter_rooms() gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/adapter.h"
#include "model/adapter_rooms.h"
#include "model/architecture.h"
#include "model/context_split.h"
#include "model/given_row.h"
#include "model/image_places.h"
#include "model/layer_range.h"
#include "model/layer_stream.h"
#include "model/layers_beyond.h"
#include "model/memory_plan.h"
#include "model/weights.h"
#include "ops/draw.h"
#include "ops/step_tables.h"
#include "tensor/arena.h"
#include "tensor/host_buffer.h"

namespace jige::model {

// The longest sequence where InferenceOptions do not say how long it is.
inline constexpr int64_t kContextDefaultMax = 4096;
// States of recurrent layers, where InferenceOptions do not say how many.
inline constexpr int64_t kStatesDefault = 3;
inline constexpr int64_t kStatesOfEmbeds = 16;

struct InferenceOptions {
  std::optional<DType> compute;   // empty: bf16 where weights are stored in 16 bits, else f32
  std::optional<DType> kv_dtype;  // empty: as compute
  ops::WeightFormat format = ops::WeightFormat::kCompute;  // that matrices are kept in
  int64_t context_max = 0;     // longest sequence; 0: the model's own, but 4096 at most
  int64_t kv_block_count = 0;  // 0: enough for one sequence of context_max; embeds: a batch more
  // Of a model with recurrent layers; 0: of one sequence, a copy to come back to, and where to go
  // back from wrong guesses; embeds: of a few texts at once.
  int64_t state_count = 0;
  int64_t batch_tokens_max = 512;  // or the context, of a model that looks ahead
  int64_t logit_rows_max = 8;
  int64_t forwards_max = 1;                    // begun and not finished, at once
  bool scores = false;                         // losses() will be used
  bool embeds = false;                         // hidden_of() will be used, and no logits
  std::vector<AdapterSource> adapters;         // that sequences may ask for
  int64_t adapter_rooms = 0;                   // for adapters that are loaded later
  int64_t adapter_rank_max = 16;               // of those
  LayerRange layers;                           // that are held here
  int64_t memory_bytes_max = kUnlimitedBytes;  // cap of the arena
  // Layers, ascending, whose weights the host keeps, and how many slots they share.
  std::vector<int32_t> streamed_layers = {};
  int64_t slot_count = 0;
};

// Fills in what the options leave open for a folder's model. Fails with kInvalidArgument on options
// out of range, and as stored_table_dtype and open_adapters do.
Result<InferenceSizes> inference_sizes(const InferenceOptions& options,
                                       const Architecture& architecture,
                                       const formats::TensorFolder& files);

// The rows of one forward: sequence after sequence, each with consecutive positions from its
// context_count on.
struct InferenceBatch {
  std::span<const int32_t> tokens;
  std::span<const ops::SequenceSpan> sequences;  // cover the rows in order; blocks must be given
  std::span<const int32_t> logit_rows;           // rows whose next-token logits are wanted
  std::span<const int32_t> adapters = {};  // by sequence, or kNoAdapter; empty: the base for all
  std::span<const GivenRow> given = {};    // ascending; such rows have a token, too
  // Rows that see one another; ascending, each run inside of a sequence.
  std::span<const RowRange> mutual = {};
  // By sequence, null: without images; empty: none has any. REQUIRES: turn_by_places().
  std::span<const ImagePlaces* const> places = {};
};

// A row of a forward, and a token of which is asked how likely it is behind it.
struct TargetRow {
  int32_t row = 0;
  int32_t token = 0;
};

// What a forward gives of the rows that were wanted, one behind the other: of each its logits, or
// the token that was drawn from them (ops/draw.h).
struct LogitRows {
  std::span<const float> logits;  // [rows, columns], or empty where all have tokens
  size_t columns = 0;
  std::span<const int32_t> tokens = {};  // -1: the row has its logits; empty: all have
  std::span<const float> logprobs = {};  // of tokens that are scored; or empty
  int32_t token(size_t i) const { return tokens.empty() ? -1 : tokens[i]; }
  float logprob(size_t i) const { return logprobs.empty() ? 0 : logprobs[i]; }
  // REQUIRES: token(i) < 0.
  std::span<const float> row(size_t i) const { return logits.subspan(i * columns, columns); }
  // Rows from `begin` on.
  LogitRows from(size_t begin) const {
    return {.logits = logits.empty() ? logits : logits.subspan(begin * columns),
            .columns = columns,
            .tokens = tokens.empty() ? tokens : tokens.subspan(begin),
            .logprobs = logprobs.empty() ? logprobs : logprobs.subspan(begin)};
  }
};

class InferenceModel {
 public:
  // Reads FOLDER/config.json and its weights. Fails as load_model_config, TensorFolder::open and
  // load_weights do, as open_adapters does, with kInvalidArgument on options out of range,
  // kExhausted where memory or the cap is too small.
  static Result<std::unique_ptr<InferenceModel>> load(const std::string& folder, Device& device,
                                                      const InferenceOptions& options = {});

  // Runs with weights that are held elsewhere, such as those of a model that is being trained, on
  // their device: what they are between two calls decides the next one. They must outlive it, and
  // stay as they are while one runs. Of the options, compute type and format are theirs; they bring
  // their own adapters. Fails with kInvalidArgument on options out of range, a context beyond their
  // table of positions among them, kUnsupported on models with latents, and kExhausted.
  static Result<std::unique_ptr<InferenceModel>> borrow(const ModelWeights& weights, Device& device,
                                                        const InferenceOptions& options);

  // Who computes the layers behind those held here. REQUIRES: the first layers are held, with the
  // ends.
  void set_beyond(std::unique_ptr<LayersBeyond> beyond) { beyond_ = std::move(beyond); }
  // Null where all layers are here.
  LayersBeyond* beyond() { return beyond_.get(); }

  // Host memory for n rows that run_layers() is to take, from where it need not copy them first.
  // REQUIRES: the ends are not held here; n is at most batch_tokens_max.
  TensorView layer_rows(int64_t row_count);
  // Whether a GPU may copy from and to rows where they are.
  enum class RowsMemory { kAny, kPinned };
  // Rows [n, stream columns] f32 in host memory behind the layers that are held, valid until the
  // next call; of a GPU in place of pinned ones. Fails with kInvalidArgument on sequences, blocks,
  // states or rows that are out of range. REQUIRES: the ends are not held here.
  Result<TensorView> run_layers(std::span<const ops::SequenceSpan> sequences,
                                const TensorView& rows, RowsMemory memory = RowsMemory::kAny);

  const formats::ModelConfig& config() const { return architecture_->config(); }
  // Whether rows may be given. Not where further residual streams are made of the token, or where
  // the ends are elsewhere. Inputs of layers beside a row are those of its token.
  bool takes_given_rows() const;
  // Whether rows may see one another. Fails with kUnsupported naming what there is no way for yet:
  // a GPU, layers elsewhere, other attention than that of heads with keys of their own.
  Status check_mutual_rows() const;
  // Sequences may have images with places from now on, by which these pairs of a head turn. Fails
  // with kUnsupported where that cannot be here, with kInvalidArgument where a head has other
  // pairs. REQUIRES: no forward is under way.
  Status turn_by_places(PairPlaces pairs);
  bool turns_by_places() const { return !place_angles_.empty(); }
  const Architecture& architecture() const { return *architecture_; }
  const InferenceSizes& sizes() const { return sizes_; }
  // In the order of the options, with numbers from 0.
  const std::vector<Adapter>& adapters() const { return adapters_; }
  // Where more are loaded, with numbers behind those; none of it without options.adapter_rooms.
  AdapterRooms& adapter_rooms() { return *rooms_; }
  bool has_adapter(int32_t number) const { return find_adapter(number) != nullptr; }
  int64_t context_max() const { return sizes_.context_max; }
  int64_t peak_bytes() const { return arena_.peak_bytes(); }
  Device& device() { return arena_.device(); }
  double load_seconds() const { return load_seconds_; }
  // Null where no layer is streamed.
  const LayerStream* layer_stream() const { return layer_stream_.get(); }
  // Calls of forward(), losses(), copy_block() and copy_state() so far: who keeps account of what
  // the cache holds can tell whether another has used it.
  uint64_t forward_count() const { return forward_count_; }

  // The logits of the wanted rows, [rows, V] f32, valid until the next call. Fails with
  // kInvalidArgument on tokens, rows or positions out of range and batches that are too large.
  Result<std::span<const float>> forward(const InferenceBatch& batch);

  // The same with a draw for each row of logits, where it can be done on the device: the logits
  // stay there then, but of rows from which none can be drawn.
  Result<LogitRows> forward_drawn(const InferenceBatch& batch, std::span<const ops::RowDraw> draws);

  // The halves of forward_drawn(): begin() puts a forward under way, as far as it can be computed
  // here, and gives its number; finish() waits for it and gives what was wanted, valid until the
  // next call. They may be finished in any order; each must be, whatever becomes of it. `draws` may
  // be empty. REQUIRES: fewer than sizes().forwards_max are under way, more than none with
  // set_beyond() alone; what one of them writes, a block or a state, no other uses or copies.
  Result<int32_t> begin(const InferenceBatch& batch, std::span<const ops::RowDraw> draws);
  Result<LogitRows> finish(int32_t forward);

  // The logits of other rows of the last forward(), in place of those it gave: so a prompt's logits
  // are had a few rows at a time. Fails with kInvalidArgument on rows out of range, none, and more
  // than logit_rows_max.
  Result<std::span<const float>> logits_of(std::span<const int32_t> rows);

  // Rows of the last forward() behind the final norm, [rows, D] f32, valid until the next call. The
  // same bits as alone, whatever ran beside them. Fails as logits_of() does. REQUIRES:
  // options.embeds; such a model holds no head, and forward() is given no rows of logits.
  Result<std::span<const float>> hidden_of(std::span<const int32_t> rows);

  // The negative log-probability of each target, in their order, valid until the next call. They
  // may be of some rows only, and several of one. Fails as forward() does. REQUIRES:
  // options.scores.
  Result<std::span<const float>> losses(const InferenceBatch& batch,
                                        std::span<const TargetRow> targets);

  // Makes cache block `dst` a copy of `src`, keys and values of every layer, for calls from now on.
  // Fails with kInvalidArgument on blocks that are not there.
  Status copy_block(int32_t src, int32_t dst);

  // The same with the states of recurrent layers. Fails with kInvalidArgument on states that are
  // not there.
  Status copy_state(int32_t src, int32_t dst);

 private:
  // What sequences have in a layer: a cache, or the states of a recurrent one.
  struct LayerBuffers {
    Tensor kv;
    Tensor inputs, matrices;
  };
  struct Buffers {
    Tensor stream[2], workspace, gathered, results;
    std::vector<Tensor> beyond;  // rows of each forward under way, where several may be
    Tensor tokens, positions, losses;
    Tensor targets;  // or the tokens that are drawn
    Tensor scores;   // of these
    Tensor adapter_product, adapter_scratch;
    std::vector<Tensor> adapter_rooms;
    std::vector<LayerBuffers> layers;
  };

  InferenceModel(Device& device, const Architecture& architecture, const InferenceSizes& sizes,
                 int64_t memory_bytes_max);
  Status allocate();
  Status allocate_sequences();
  Status take_rooms(int64_t rank_max, const std::string& base_folder);
  Status check(const InferenceBatch& batch) const;
  // Whether the last residual stream has these rows; fails as logits_of() does.
  Status check_hidden_rows(std::span<const int32_t> rows) const;
  // These rows of it, brought together where they do not follow one another.
  TensorView hidden_rows(std::span<const int32_t> rows);
  // The losses of as many targets as a forward has rows, behind those that are there. `src` is the
  // last residual stream, `other` memory of its size.
  void add_losses(std::span<const TargetRow> targets, const TensorView& src,
                  const TensorView& other);
  // Puts the head's work for them on the stream; where the logits will be.
  TensorView run_head(std::span<const int32_t> rows);
  Status check_logit_rows(std::span<const int32_t> rows, int64_t row_count) const;
  Status check_sequence(const ops::SequenceSpan& sequence, int64_t row_begin) const;
  // Every sequence has a state of its own, which stands where its rows go on.
  Status check_states(std::span<const ops::SequenceSpan> sequences) const;
  Status check_adapters(const InferenceBatch& batch) const;
  Status check_given(std::span<const GivenRow> given, int64_t row_count) const;
  Status check_mutual(const InferenceBatch& batch) const;
  Status check_places(const InferenceBatch& batch) const;
  const Adapter* find_adapter(int32_t number) const;
  void put_batch(const InferenceBatch& batch);
  // The positions of its rows or, where rows of images are among them, the angles.
  void put_positions(const InferenceBatch& batch);
  // Puts tokens and positions on the stream, as a part of the step's work.
  void send_batch(const InferenceBatch& batch);
  // The ranges of rows that ask for adapters, one for neighbours that ask for the same.
  void put_adapters(const InferenceBatch& batch);
  // From begin() to finish().
  struct Forward {
    bool is_under_way = false;
    TensorView rows;                  // the last residual stream; elsewhere: in host memory
    int64_t piece_end = 0;            // of the pieces that were started elsewhere
    std::vector<int32_t> logit_rows;  // that are wanted
    std::vector<ops::RowDraw> draws;  // of them, as far as they can be done here; empty: none
  };
  // Puts a forward on the stream or, where there are other layers, what is computed before those.
  // Fails as they do.
  Status run_body(const InferenceBatch& batch, Forward& forward);
  // The rest, when its rows are back; it is not under way any more.
  Status end_body(Forward& forward);
  // Puts the head for the wanted rows on the stream, and their draws.
  void run_ends(const Forward& forward);
  // Puts the work of a block on the stream.
  void run_block(size_t node, const Batch& batch, const TensorView& src, const TensorView& dst);
  // The blocks that are held here but the head, for rows that stand in the residual streams, `last`
  // behind the last block, from row_begin on; returns them.
  TensorView run_held(const Batch& batch, const Tensor& last, int64_t row_begin);
  // The same for all rows of a batch, a piece at a time, each of which goes on to the layers that
  // are computed elsewhere.
  Status start_divided(const InferenceBatch& batch, Forward& forward);
  // A part of a forward's rows that is computed here, and goes elsewhere once `done` has come.
  struct Piece {
    std::vector<ops::SequenceSpan> sequences;
    TensorView rows;
    Event done;
  };
  Piece put_piece(const InferenceBatch& batch, const Forward& forward, int64_t begin, int64_t end);
  Status start_piece(const Piece& piece);
  // Where the rows of a forward are while they are elsewhere, all that there is room for.
  TensorView rows_elsewhere(size_t number);
  // The residual stream behind the last block that is held here.
  const Tensor& last_stream() const;
  void put_draws(std::span<const ops::RowDraw> draws, Forward& forward);
  // The log-probabilities of tokens that were drawn, where one is scored.
  std::span<const float> drawn_logprobs(std::span<const ops::RowDraw> draws);
  // Brings the logits of rows whose token is -1 to the host, to their places among all.
  std::span<const float> undrawn_to_host();
  BlockContext context(size_t node);
  // Elements of 4 bytes.
  template <typename T>
  std::span<const T> to_host(const TensorView& view);

  std::unique_ptr<const Architecture> own_architecture_;  // null where weights are borrowed
  const Architecture* architecture_;
  InferenceSizes sizes_;
  Arena arena_;
  std::vector<HostBuffer> host_streams_;  // of a GPU with some of the layers; see InferenceBuffers
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<LayersBeyond> beyond_;     // null where all layers are here
  std::optional<ModelWeights> own_weights_;  // not there where they are borrowed
  const ModelWeights* weights_ = nullptr;
  std::unique_ptr<LayerStream> layer_stream_;
  std::vector<Adapter> adapters_;
  Buffers buffers_;
  std::unique_ptr<AdapterRooms> rooms_;
  Batch batch_;  // views of buffers_, shaped anew for every call
  StepAdapters step_adapters_;
  ops::StepTables step_tables_;
  std::vector<int64_t> state_tokens_;  // that each state stands behind
  TensorView hidden_;                  // the last residual stream of the last call
  TensorView logits_;                  // those that it was asked for
  std::vector<int32_t> host_positions_;
  std::vector<float> host_angles_;  // of the last call; empty: the table's
  PlaceAngles place_angles_;        // empty: there are no images with places
  std::vector<GivenRow> given_;     // of the last call
  std::vector<Forward> forwards_;   // forwards_max
  int64_t piece_count_ = 0;         // that were ever started elsewhere
  std::vector<float> losses_;       // of the last losses()
  std::vector<int32_t> drawn_;      // what the last finish() drew
  std::vector<float> drawn_logprobs_;
  HostBuffer host_result_;  // for devices whose memory the host cannot read
  double load_seconds_ = 0;
  uint64_t forward_count_ = 0;
};

}  // namespace jige::model
