// Where a run stands, and its checkpoints.
//
// A checkpoint (formats/checkpoint.h) under OUT/checkpoints holds the masters and both moments of
// every trained parameter by name, and in its state JSON the run's identity (options.h, with the
// hashes of the data), RunState, and RunOrigin for an export; where rows are skipped, also
// RowGate::state(). There is no random state to keep:
// data order and initial values are functions of the seed and the cursor. Threads: one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "formats/checkpoint.h"
#include "train/best_measurement.h"
#include "train/optimizer.h"
#include "train/row_gate.h"

namespace jige::train {

struct RunState {
  int64_t step = 0;            // steps done
  uint64_t cursor = 0;         // sequences taken, see step_plan.h
  int64_t update_count = 0;    // steps that changed the weights
  int64_t input_tokens = 0;    // read so far
  int64_t learned_tokens = 0;  // targets so far
  int64_t bad_steps = 0;       // skipped for gradients that were not finite
  int64_t bad_steps_in_row = 0;
  int64_t log_bytes = 0;  // of the log, up to this step
  double seconds = 0;     // of training, over all parts of the run
  // What comes before the next step, or before the run's end: a measurement that was left, or where
  // rewards are learned from the first one.
  bool evaluation_due = false;
  std::optional<BestMeasurement> best;  // of held-out data; none yet, or forgotten

  Json to_json() const;
  // Fails with kNotFound or kInvalidArgument naming the field.
  static Result<RunState> from_json(const Json& json, const std::string& where);
};

// What the first weights of a run are from, see run_source.h.
struct RunSource {
  std::string folder;    // absolute; empty: a new model
  std::string checksum;  // of its weights
};

// Where an export of a checkpoint finds what is not in it, and what the run was begun from. Decides
// no result: the folders may have moved when the run goes on.
struct RunOrigin {
  std::string tokenizer_folder;  // absolute
  std::string base_folder;       // of an adapter, absolute; else empty
  std::string image_folder;      // of what reads images, where all weights are trained; or empty
  DType export_dtype = DType::kF32;
  std::optional<RunSource> source;  // none: of adapters, and of older checkpoints

  Json to_json() const;
  // From a checkpoint's state; without the field "origin" (older checkpoints) the default. Fails as
  // RunState::from_json.
  static Result<RunOrigin> from_state(const Json& state, const std::string& where);
};

// Files of a checkpoint, one tensor in each by parameter.
inline constexpr const char* kCheckpointValues = "params";
inline constexpr const char* kCheckpointMoments1 = "adam_m";
inline constexpr const char* kCheckpointMoments2 = "adam_v";
inline constexpr const char* kCheckpointRowGate = "row_gate";

struct SaveRequest {
  std::string run_folder;  // OUT/checkpoints
  RunOrigin origin;
  int64_t keep_last = 2;
  std::optional<int64_t> keep_step;  // and the checkpoint of this step
};

// Pieces in which tensors are written: one stands beside all that a step takes, and no prediction
// has room for much of it.
inline constexpr int64_t kSavedPieceBytes = int64_t{512} << 10;

// The whole first (0) or second (1) moment of a parameter, by its number, where not all of it is
// held here (shared_state.h).
using MomentSource = std::function<formats::TensorSource(size_t param, int moment)>;

// What a checkpoint is of besides. Who gives it keeps it as it is until it is written.
struct SavedParts {
  const Optimizer& optimizer;
  RowGate* gate = nullptr;         // where rows are skipped
  MomentSource moments = nullptr;  // where not all of them are the optimizer's here
};

// Writes a checkpoint of this state. Fails with kExhausted on a full disk, leaving what was there.
Status save_checkpoint(const SaveRequest& request, const Json& identity, const RunState& state,
                       const SavedParts& parts, const model::NodeStreams& streams);

// Reads values and moments back, of moments what is held here. Fails with kNotFound or kCorrupt
// naming the tensor when the checkpoint is of another model. The state's JSON fields "identity" and
// "run" are the caller's.
Status restore_parameters(const formats::CheckpointReader& checkpoint, Optimizer& optimizer,
                          const model::NodeStreams& streams);
// The same of what a gate knows; kCorrupt where that cannot be.
Status restore_row_gate(const formats::CheckpointReader& checkpoint, RowGate& gate, Stream& stream);

}  // namespace jige::train
