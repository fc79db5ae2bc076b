// jige export --merge: a model folder and a LoRA adapter as one model folder.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/output.h"
#include "tensor/dtype.h"

namespace jige::cli {

struct MergeFlags {
  std::string base;     // folder of a model, or of a run that ended
  std::string adapter;  // folder of an adapter, or of a run
  std::string out;
  std::optional<DType> dtype;  // none: that of the base
  bool replace = false;
};

// Writes the folder, with the base's tokenizer, and says so.
Status merge_folders(const MergeFlags& flags, const OutputFlags& output);

}  // namespace jige::cli
