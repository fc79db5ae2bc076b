// What a run was begun from, and that it goes on from the same.
//
// The checkpoints of a run that trains all weights hold all it needs, so the folder it began from
// is not read again, and nothing but what the checkpoints recorded (run_state.h) tells when another
// one is named. Adapters know their base by the checksum in their identity; the record says where
// it was. Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "train/run_setup.h"
#include "train/run_state.h"

namespace jige::train {

// Fails with kNotFound where a checkpoint is required and the run in OUT has none, and with
// kInvalidArgument where there shall be none and there is one. Reads no checkpoint.
Status check_resume(const std::string& out_folder, ResumeMode mode);

// What later checkpoints shall record; nothing for adapters, and for a run whose checkpoint is
// older than the record. Fails with kInvalidArgument naming both folders where a run with this
// checkpoint was begun from other weights, or its adapter on another base. A folder that has moved
// is known by its weights.
Result<std::optional<RunSource>> check_source(
    const RunSetup& setup, const std::optional<formats::CheckpointReader>& checkpoint);

// An adapter on a base that it was not trained on, as an error that names all three folders.
struct OtherBase {
  std::string adapter;   // the run or the checkpoint it is in
  std::string made_for;  // empty where it is not known
  std::string given;
  std::string remedy;
};
[[nodiscard]] tl::unexpected<Error> other_base(const OtherBase& bases);

// The folder whose model the run in OUT was begun from; empty where there is no checkpoint, or none
// that says so. Reads no tensor.
std::string recorded_source(const std::string& out_folder);
// The flags that name the adapter which the run in OUT trains, and its base: "--from BASE --lora
// --lora-rank 8 …"; empty where it trains none. Reads no tensor.
std::string recorded_adapter_flags(const std::string& out_folder);

}  // namespace jige::train
