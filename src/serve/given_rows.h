// Rows that stand in a prompt in place of tokens' embeddings, such as those of an image.
//
//   GivenTable table(request.given, request.prompt);
//   table.place(tokens, 0, placed);     // ids of rows become tokens, and their rows are listed
//   table.places();                     // where the prompt's tokens stand, if images have columns
//
// Each row has an id beyond the vocabulary, which a prompt names where the row stands: so what
// compares prompts (the prefix cache, the next turn of a chat) and what cuts them needs to know
// nothing of rows. Rows of one id have the same values wherever prompts are compared (row_book.h).
// For what wants a token in their place, penalties and guesses, they have one of the vocabulary.
// Rows may see one another, those behind them, too. Then a prompt has all of them, one behind the
// other: so their ids name what each of them has seen, and what is cached of some is right for all
// prompts that have them. They are computed in one forward.
// Rows with columns stand in a prompt as a whole, whatever number of times: so their ids alone say
// where its tokens stand (model/image_places.h).
// Threads: values; const.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/image_places.h"
#include "model/inference.h"
#include "plan/token_runs.h"

namespace jige::serve {

struct GivenRows {
  int32_t first_id = 0;
  int32_t token = 0;  // of the vocabulary
  int64_t count = 0;
  std::vector<float> values;  // [levels, count, width]
  bool mutual = false;        // they see one another
  // Of an image whose rows have places by line and column; 0: they stand one behind the other.
  int32_t columns = 0;
  // Those behind the first are added to the first layers' results (model::GivenRow::deep).
  int32_t levels = 1;

  int64_t id_end() const { return first_id + count; }
};
using GivenRowsRef = std::shared_ptr<const GivenRows>;

// What a forward is told of given rows.
struct PlacedRows {
  std::vector<model::GivenRow> given;
  std::vector<model::RowRange> mutual;

  void clear() {
    given.clear();
    mutual.clear();
  }
};

// The rows of one prompt.
class GivenTable {
 public:
  // What a model takes.
  struct Bounds {
    int64_t vocab_size = 0;
    int64_t width = 0;
    bool turns_by_places = false;
    int64_t layer_count = 0;
  };

  GivenTable() = default;
  GivenTable(std::vector<GivenRowsRef> rows, std::span<const int32_t> prompt);

  bool empty() const { return rows_.empty(); }
  // Fails with kInvalidArgument where rows are none of such a model, two have an id, or the prompt
  // has a part of rows with columns.
  Status check(const Bounds& bounds) const;
  bool any_mutual() const;
  // Fails with kInvalidArgument where a prompt has a part of rows that see one another alone, or
  // more of them than a forward has rows.
  Status check_mutual(std::span<const int32_t> prompt, int64_t forward_rows_max) const;
  // Where a prompt that was checked has rows that see one another.
  std::vector<plan::TokenRun> mutual_runs(std::span<const int32_t> prompt) const;
  bool has(int32_t id) const { return find(id) != nullptr; }
  // The prompt with a token for each row.
  std::vector<int32_t> tokens(std::span<const int32_t> ids) const;
  // Of the prompt's tokens and what follows them; null where each stands at its index.
  const model::ImagePlaces* places() const { return places_ ? &*places_ : nullptr; }
  // Replaces ids of rows among `tokens`, which are those of a sequence in a forward from
  // `first_row` on, and adds their rows.
  void place(std::span<int32_t> tokens, int32_t first_row, PlacedRows& placed) const;

 private:
  const GivenRows* find(int32_t id) const;

  // The images of the prompt whose rows have columns.
  void find_places(std::span<const int32_t> prompt);

  std::vector<GivenRowsRef> rows_;  // by first_id
  std::optional<model::ImagePlaces> places_;
  int64_t cut_index_ = -1;  // of the prompt, where a part of such rows stands
};

}  // namespace jige::serve
