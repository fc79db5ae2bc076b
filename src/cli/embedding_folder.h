// What commands that make vectors of texts, or judge pairs of them, take from a folder: how vectors
// are pooled, and how long a text or pair may be.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/served_model.h"
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
struct LengthLimits {
  int64_t of_folder = 0;  // that its files say; 0: none
  int64_t held = 0;       // by the model as it was loaded
  int64_t of_model = 0;   // that it could hold
};
EmbeddingLength embedding_length(const LengthLimits& limits);

// What a folder is served for where no flag says it.
api::ServedKind folder_kind(const std::string& folder);

// Of a model that was loaded and an engine that holds texts of so many tokens. Fails as
// embedding_form() does.
Result<api::ServedEmbedding> served_embedding(const formats::EmbeddingConfig& config,
                                              const std::string& folder,
                                              const formats::ModelConfig& model, int64_t held);
api::ServedPairs served_pairs(formats::PairConfig config, const formats::ModelConfig& model,
                              int64_t held);

}  // namespace jige::cli
