// What commands that make vectors of texts take from a folder: how vectors are pooled, and how long
// a text may be.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/embedding_config.h"
#include "model/inference.h"
#include "serve/row_pooler.h"

namespace jige::cli {

class Flags;

// Rows that such commands read at once, for means of whole texts.
inline constexpr int64_t kEmbeddingRows = 64;

// Declares --pooling NAME.
void declare_pooling(Flags& flags, std::string& pooling);

// The folder's own configuration, or with the pooling that the flag names. Fails as
// formats::load_embedding_config does.
Result<formats::EmbeddingConfig> read_embedding_config(const std::string& folder,
                                                       const std::string& pooling);

// The form of its vectors. Fails with kCorrupt where the pooling is of rows of another width than
// the model's.
Result<serve::EmbeddingForm> embedding_form(const formats::EmbeddingConfig& config,
                                            const std::string& folder, int64_t width);

// Tokens that a text may have, and what the user could do for longer ones (behind "shorten it").
struct EmbeddingLength {
  int64_t tokens_max = 0;
  std::string hint;
};
// `held`: by the model as it was loaded.
EmbeddingLength embedding_length(const formats::EmbeddingConfig& config, int64_t held,
                                 int64_t model_context_max);

}  // namespace jige::cli
