// Rows that stand in a prompt in place of tokens' embeddings, such as those of an image.
//
//   GivenTable table(request.given);
//   table.place(tokens, 0, given);      // ids of rows become tokens, and their rows are listed
//
// Each row has an id beyond the vocabulary, which a prompt names where the row stands: so what
// compares prompts (the prefix cache, the next turn of a chat) and what cuts them needs to know
// nothing of rows. Rows of one id have the same values wherever prompts are compared (row_book.h).
// For what wants a token in their place, penalties and guesses, they have one of the vocabulary.
// Threads: values; const.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/inference.h"

namespace jige::serve {

struct GivenRows {
  int32_t first_id = 0;
  int32_t token = 0;  // of the vocabulary
  int64_t count = 0;
  std::vector<float> values;  // [count, width]

  int64_t id_end() const { return first_id + count; }
};
using GivenRowsRef = std::shared_ptr<const GivenRows>;

// The rows of one prompt.
class GivenTable {
 public:
  GivenTable() = default;
  explicit GivenTable(std::vector<GivenRowsRef> rows);

  bool empty() const { return rows_.empty(); }
  // Fails with kInvalidArgument where rows are none of a model of this width and vocabulary, or two
  // have an id.
  Status check(int64_t vocab_size, int64_t width) const;
  bool has(int32_t id) const { return find(id) != nullptr; }
  // The prompt with a token for each row.
  std::vector<int32_t> tokens(std::span<const int32_t> ids) const;
  // Replaces ids of rows among `tokens`, which are those of a forward from `first_row` on, and adds
  // their rows.
  void place(std::span<int32_t> tokens, int32_t first_row,
             std::vector<model::GivenRow>& given) const;

 private:
  const GivenRows* find(int32_t id) const;

  std::vector<GivenRowsRef> rows_;  // by first_id
};

}  // namespace jige::serve
