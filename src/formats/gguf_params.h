// The parameters of a model as GGUF files and Hugging Face folders name and order them (see
// gguf_weights.h). Internal to what reads and writes GGUF files.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "tensor/view.h"

namespace jige::formats {

// How rows of the folder come from those of the file.
enum class RowOrder { kSame, kPairedHeads, kTransposed };

struct GgufParam {
  std::string stored;
  std::string name;
  Shape shape;  // in the folder
  RowOrder order = RowOrder::kSame;
  int64_t heads = 1;  // of kPairedHeads

  // The row of the file that is row `row` of the folder, and the other way about. REQUIRES: not
  // kTransposed.
  int64_t stored_row(int64_t row) const;
  int64_t folder_row(int64_t row) const;
};

// All of them, in the order of the model's layers.
std::vector<GgufParam> gguf_params(const ModelConfig& config);

}  // namespace jige::formats
