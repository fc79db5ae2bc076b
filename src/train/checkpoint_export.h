// A checkpoint of a run as a Hugging Face folder: of a run that ended, was killed, or goes on
// beside it; whatever the devices and the schedule it was made with.
//
//   JIGE_TRY(const auto exported, export_checkpoint({.run_folder = "runs/a"}));
//   exported.folder   // "runs/a/exported-step-00000123"
//
// At a run's last step the folder has the bytes of RUN/model. The checkpoint is mapped, one tensor
// at a time is in memory. No lock is taken: a checkpoint that the run removes meanwhile gives way
// to the one that took its place. The folder appears whole or not at all.
// Threads: one thread at a time; a run may write checkpoints beside it, from any process.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "tensor/dtype.h"

namespace jige::train {

struct CheckpointExportOptions {
  std::string run_folder;
  std::string out_folder;        // empty: RUN/exported-step-00000123
  std::optional<int64_t> step;   // none: the latest checkpoint that is intact
  std::optional<DType> dtype;    // none: what the run writes in the end
  bool adapter = false;          // of a run with LoRA: the adapter alone, not merged into its base
  bool replace = false;          // an earlier folder of Jige's; never one with other files
  std::string tokenizer_folder;  // empty: the run's own
  // Of a run with LoRA, or of a model that reads images; empty: the one it was started from.
  std::string base_folder;
  const std::atomic<bool>* cancelled = nullptr;  // looked at before every tensor of a model
};

struct CheckpointExport {
  std::string folder;      // that was written
  std::string checkpoint;  // that was read
  int64_t step = 0;
  DType dtype = DType::kF32;
  bool adapter = false;
};

// Fails with kNotFound where the run has no (such) checkpoint, or its tokenizer or base is gone;
// kCorrupt where no checkpoint is intact; kInvalidArgument where the target is there already, or
// holds other files, or the base is another one; kExhausted on a full disk; kCancelled.
Result<CheckpointExport> export_checkpoint(const CheckpointExportOptions& options);

}  // namespace jige::train
