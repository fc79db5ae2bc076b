// Embedder: one vector for each of many texts, several of them in every step of the model.
//
//   serve::Embedder embedder(*model, {.pooling = formats::PoolingKind::kMean});
//   JIGE_TRY(const auto vectors, embedder.embed(inputs));
//
// Texts run in the order they are given: each step takes as many tokens as the model's batch holds,
// and a text that does not fit into one goes on in the next; or, of a model that looks ahead, runs
// whole there. A vector's bits depend on its own tokens alone. Threads: one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "serve/embedding_text.h"
#include "serve/row_pooler.h"

namespace jige::serve {

class Embedder {
 public:
  // The model must outlive the embedder, which uses all of its cache and runs with one of its
  // adapters, or with none. REQUIRES: model.sizes().embeds, form.dimensions within the width.
  Embedder(model::InferenceModel& model, const EmbeddingForm& form,
           int32_t adapter = model::kNoAdapter);

  // Tokens that a text may have: the model's context, or what the cache holds if that is less.
  int64_t tokens_max() const;
  // Numbers of a vector.
  int64_t dimensions() const;

  // Fails with kInvalidArgument on a text without tokens, or none but those of a prompt that the
  // pooling leaves out, on one that is longer than tokens_max(), and on ids out of range.
  Status check(const EmbedInput& input) const;

  // The vectors, in the order of the texts. Fails as check() does, with kCorrupt where a vector is
  // not finite, and kCancelled once `cancelled` is set.
  Result<std::vector<std::vector<float>>> embed(std::span<const EmbedInput> inputs,
                                                const std::atomic<bool>* cancelled = nullptr);

 private:
  // A text of which some tokens have run.
  struct Live {
    size_t input = 0;
    int64_t done = 0;
    int64_t step = 0;  // tokens of it in the step at hand
    std::vector<int32_t> blocks;
    int32_t state = 0;  // of recurrent layers
    RowPooler pooler;
  };

  bool has_states() const { return model_.sizes().state_count > 0; }
  // Chooses the tokens of the next step: what is left of a text that has begun, then new ones.
  void fill_step(std::span<const EmbedInput> inputs);
  Status run_step(std::span<const EmbedInput> inputs);
  // Gives the rows of the step to the texts that want them.
  Status pool_rows();

  model::InferenceModel& model_;
  EmbeddingForm form_;
  int32_t adapter_;
  std::vector<int32_t> free_blocks_;
  std::vector<int32_t> free_states_;
  std::vector<Live> live_;
  size_t next_ = 0;  // input that has not begun
};

}  // namespace jige::serve
