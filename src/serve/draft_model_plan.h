// What a small model that guesses tokens for a large one is loaded with, and what that takes.
//
//   JIGE_TRY(const int32_t ids, common_vocabulary(tokenizer, draft_tokenizer));
//   JIGE_TRY(const auto plan, DraftModelPlan::create(folder, {.ids_max = ids, .sequences = 64}));
//   plan.bytes(large_block_count)   // what DraftModel::load() will take, for the memory plan
//
// It has a cache of its own, as many blocks as the large model's: so it can know what that knows.
// Weights are of the folder's own type.
// Threads: values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "model/inference.h"
#include "text/tokenizer.h"

namespace jige::serve {

// How many ids, from 0 on, mean the same to both: those that both tokenizers have. Fails with
// kInvalidArgument, naming the first id that is another token, or where they have none in common.
Result<int32_t> common_vocabulary(const text::Tokenizer& large, const text::Tokenizer& draft);

struct DraftModelUse {
  int32_t ids_max = 0;      // ids that may be guessed
  int64_t context_max = 0;  // at most the model's own is used; 0: as of InferenceOptions
  int64_t sequences = 1;    // that are followed at once
  int64_t batch_tokens_max = 512;
  bool prefix_cache = true;              // beginnings that were read before are not read again
  DeviceKind device = DeviceKind::kCpu;  // that computes
};

class DraftModelPlan {
 public:
  // Fails as loading a folder does before it reads the weights, and with kUnsupported where the
  // model has recurrent layers, since wrong guesses could not be forgotten.
  static Result<DraftModelPlan> create(const std::string& folder, const DraftModelUse& use);

  const std::string& folder() const { return folder_; }
  int32_t ids_max() const { return ids_max_; }
  bool prefix_cache() const { return prefix_cache_; }
  // Of the model's arena beside a large model with so many blocks.
  int64_t bytes(int64_t large_block_count) const;
  model::InferenceOptions options(int64_t large_block_count, int64_t memory_bytes_max) const;

 private:
  std::string folder_;
  int32_t ids_max_ = 0;
  bool prefix_cache_ = true;
  std::shared_ptr<const model::Architecture> architecture_;
  model::InferenceSizes sizes_;
};

}  // namespace jige::serve
