// The parameters of a model as GGUF files and Hugging Face folders name and order them (see
// gguf_weights.h).
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "tensor/view.h"

namespace jige::formats {

// How an architecture of GGUF files stores what a family of folders has.
//   kPaired  rows of query and key that rotary embedding turns together stand side by side
//   kPlain   as in the folder; GPT-2's matrices are transposed
//   kFused   as in the folder, but query, key and value are one tensor, and gate and up another
enum class GgufLayout { kPaired, kPlain, kFused };

// That of an architecture; nothing where Jige does not read it.
std::optional<GgufLayout> find_gguf_layout(std::string_view architecture);
// The family of an architecture, of files with experts or without. REQUIRES: one that
// find_gguf_layout knows.
Family gguf_family(std::string_view architecture, bool experts);
// "llama, qwen2 …".
std::string known_gguf_architectures();

// How rows of the folder come from those of the file.
enum class RowOrder { kSame, kPairedHeads, kTransposed };

struct GgufParam {
  std::string stored;
  std::string name;
  Shape shape;  // in the folder
  RowOrder order = RowOrder::kSame;
  int64_t heads = 1;  // of kPairedHeads
  // Of kFused and of experts: which rows of the stored tensor, which has `stored_rows` (0: those
  // of `shape`).
  int64_t first_row = 0;
  int64_t stored_rows = 0;
  bool adds_one = false;  // the file holds 1 + what the folder does
  bool flat = false;      // a matrix of one row, which the file has as a vector
  // Of an expert: matrices of this shape that the stored tensor has, one behind the other.
  int64_t stored_matrices = 0;

  // The row of the file that is row `row` of the folder, and the other way about. REQUIRES: not
  // kTransposed.
  int64_t stored_row(int64_t row) const;
  int64_t folder_row(int64_t row) const;
};

// All of them, in the order of the model's layers.
std::vector<GgufParam> gguf_params(const ModelConfig& config, GgufLayout layout);

}  // namespace jige::formats
