// The parameters of a model as GGUF files and Hugging Face folders name and order them (see
// gguf_weights.h).
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/model_config.h"
#include "tensor/view.h"

namespace jige::formats {

// How an architecture of GGUF files stores what a family of folders has.
//   kPaired  rows of query and key that rotary embedding turns together stand side by side
//   kPlain   as in the folder; GPT-2's matrices are transposed
enum class GgufLayout { kPaired, kPlain };

// That of an architecture; nothing where Jige does not read it.
std::optional<GgufLayout> find_gguf_layout(std::string_view architecture);
// The family of an architecture, of files with experts or without. REQUIRES: one that
// find_gguf_layout knows.
Family gguf_family(std::string_view architecture, bool experts);
// "llama, qwen2 …".
std::string known_gguf_architectures();

// How rows of the folder come from those of the file. kByHead: the folder has query, key and value
// of a head together, the file those of all heads.
enum class RowOrder { kSame, kPairedHeads, kByHead, kTransposed };

// What the file holds of a number of the folder: itself, 1 + it, or -exp(it).
enum class GgufChange { kNone, kAddsOne, kNegativeExp };

// A parameter of the folder that several tensors, or one in an order of its own, are written of; a
// row is one of its last dimension.
class GgufFolderRows {
 public:
  virtual ~GgufFolderRows() = default;
  virtual void read(int64_t row, float* out) const = 0;
  virtual float number(int64_t row, int64_t column) const = 0;
};

struct GgufStored {
  std::string name;
  std::vector<int64_t> dims;  // the slowest first
  // A row of it, of the parameter that GgufMade makes. REQUIRES: set where the family is written.
  std::function<void(const GgufFolderRows& folder, int64_t row, float* out)> write = nullptr;
};

// The tensors that one parameter is made of, by their place in GgufMade::from.
class GgufRows {
 public:
  virtual ~GgufRows() = default;
  // The values of `count` rows, one behind the other.
  virtual void read(size_t source, int64_t first, int64_t count, float* out) const = 0;
  // The blocks of a row, as the file has them.
  virtual const std::byte* blocks(size_t source, int64_t row) const = 0;
};

// What is made of several tensors, or of one in an order of its own: equal pieces, one behind the
// other.
struct GgufMade {
  std::vector<GgufStored> from;
  int64_t pieces = 1;
  // One of these: the values of a piece, or its bytes, of a parameter of u8.
  std::function<void(const GgufRows& rows, int64_t piece, float* out)> values = nullptr;
  std::function<void(const GgufRows& rows, int64_t piece, std::byte* out)> bytes = nullptr;
};

struct GgufParam {
  std::string stored;  // empty: see `made`
  std::string name;
  Shape shape;  // in the folder
  RowOrder order = RowOrder::kSame;
  int64_t heads = 1;  // of kPairedHeads and kByHead
  // Of a part and of experts: which rows of the stored tensor, which has `stored_rows` (0: those of
  // `shape`).
  int64_t first_row = 0;
  int64_t stored_rows = 0;
  GgufChange change = GgufChange::kNone;
  bool flat = false;  // a matrix of one row, which the file has as a vector
  bool wide = false;  // f32 in folders of every type
  // Of an expert: matrices of this shape that the stored tensor has, one behind the other.
  int64_t stored_matrices = 0;
  // The same numbers in the same order, but in another shape; empty: in that of the folder.
  std::vector<int64_t> stored_dims = {};
  // What a row is multiplied with when it is written, where files have no multipliers.
  std::function<double(int64_t row)> written_scale = nullptr;
  std::optional<GgufMade> made = std::nullopt;

  // The row of the file that is row `row` of the folder, and the other way about. REQUIRES: not
  // kTransposed.
  int64_t stored_row(int64_t row) const;
  int64_t folder_row(int64_t row) const;
};

// All of them, in the order of the model's layers. Of a file that is read, what it holds decides
// where writers differ; null: as Jige writes them. Blocks of MXFP4 are copied or decoded.
std::vector<GgufParam> gguf_params(const ModelConfig& config, GgufLayout layout,
                                   const GgufHeader* file = nullptr, bool keep_blocks = false);

}  // namespace jige::formats
