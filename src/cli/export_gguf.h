// jige export --gguf: a model folder as a GGUF file.
//
// Threads: one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/output.h"

namespace jige::cli {

struct GgufExportFlags {
  std::string folder;  // of a model, or of a run that ended
  std::string file;
  std::string type = "auto";
  bool replace = false;
};

// Writes the file and says what is in it.
Status export_as_gguf(const GgufExportFlags& flags, const OutputFlags& output);

}  // namespace jige::cli
