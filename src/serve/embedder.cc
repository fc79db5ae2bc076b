#include "serve/embedder.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "serve/context_hint.h"

namespace jige::serve {
namespace {

size_t blocks_of(const EmbedInput& input) {
  return (input.tokens.size() + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

}  // namespace

Embedder::Embedder(model::InferenceModel& model, const EmbeddingForm& form, int32_t adapter)
    : model_(model), form_(form), adapter_(adapter) {
  JIGE_CHECK(model.sizes().embeds, "an Embedder needs a model loaded for embeddings");
  const int64_t width = form.width(model.config().hidden_size);
  JIGE_CHECK(form.dimensions >= 0 && form.dimensions <= width, "{} dimensions of {}",
             form.dimensions, width);
}

int64_t Embedder::tokens_max() const {
  return std::min(model_.context_max(), model_.sizes().kv_block_count * ops::kKvBlockTokens);
}

int64_t Embedder::dimensions() const {
  return form_.dimensions > 0 ? form_.dimensions : form_.width(model_.config().hidden_size);
}

Status Embedder::check(const EmbedInput& input) const {
  const int64_t count = std::ssize(input.tokens);
  if (count == 0) return fail(Code::kInvalidArgument, "the text has no token to make a vector of");
  if (count > tokens_max()) {
    return fail(Code::kInvalidArgument,
                "the text has {} tokens and the context holds {}; shorten it{}", count,
                tokens_max(), context_hint(tokens_max(), model_.config().context_max));
  }
  JIGE_DO(check_pooled(form_, count, input.prompt_count));
  const int64_t vocab_size = model_.config().vocab_size;
  for (const int32_t id : input.tokens) {
    if (id >= 0 && id < vocab_size) continue;
    return fail(Code::kInvalidArgument, "the text has the token id {}; the model knows 0..{}", id,
                vocab_size - 1);
  }
  return {};
}

void Embedder::fill_step(std::span<const EmbedInput> inputs) {
  int64_t room = model_.sizes().batch_tokens_max;
  const auto take = [&](Live& live) {
    const int64_t rest = std::ssize(inputs[live.input].tokens) - live.done;
    live.step = std::min(rest, room);
    room -= live.step;
  };
  for (Live& live : live_) take(live);
  for (; room > 0 && next_ < inputs.size(); ++next_) {
    const EmbedInput& input = inputs[next_];
    if (model_.sizes().whole_texts && std::ssize(input.tokens) > room) break;
    const size_t needed = blocks_of(input);
    if (needed > free_blocks_.size() || (has_states() && free_states_.empty())) break;
    live_.push_back(
        {.input = next_,
         .blocks = {free_blocks_.end() - static_cast<ptrdiff_t>(needed), free_blocks_.end()},
         .pooler = RowPooler(form_, std::ssize(input.tokens), input.prompt_count)});
    free_blocks_.resize(free_blocks_.size() - needed);
    if (has_states()) {
      live_.back().state = free_states_.back();
      free_states_.pop_back();
    }
    take(live_.back());
  }
}

Status Embedder::pool_rows() {
  struct Wanted {
    Live* live;
    int64_t token;
  };
  std::vector<int32_t> rows;
  std::vector<Wanted> wanted;
  int64_t begin = 0;
  for (Live& live : live_) {
    for (int64_t i = 0; i < live.step; ++i) {
      if (!live.pooler.wants(live.done + i)) continue;
      rows.push_back(static_cast<int32_t>(begin + i));
      wanted.push_back({&live, live.done + i});
    }
    begin += live.step;
  }
  const auto rows_max = static_cast<size_t>(model_.sizes().logit_rows_max);
  const auto width = static_cast<size_t>(model_.config().hidden_size);
  for (size_t first = 0; first < rows.size(); first += rows_max) {
    const size_t count = std::min(rows_max, rows.size() - first);
    JIGE_TRY(const std::span<const float> values,
             model_.hidden_of(std::span(rows).subspan(first, count)));
    for (size_t i = 0; i < count; ++i) {
      const Wanted& one = wanted[first + i];
      one.live->pooler.add(one.token, values.subspan(i * width, width));
    }
  }
  return {};
}

Status Embedder::run_step(std::span<const EmbedInput> inputs) {
  std::vector<int32_t> tokens;
  std::vector<ops::SequenceSpan> sequences;
  for (const Live& live : live_) {
    const auto part = std::span(inputs[live.input].tokens)
                          .subspan(static_cast<size_t>(live.done), static_cast<size_t>(live.step));
    sequences.push_back({.row_begin = static_cast<int32_t>(tokens.size()),
                         .row_count = static_cast<int32_t>(live.step),
                         .context_count = static_cast<int32_t>(live.done),
                         .blocks = live.blocks.data(),
                         .state = live.state,
                         .second_begin = inputs[live.input].second_begin});
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  const std::vector<int32_t> adapters(sequences.size(), adapter_);
  JIGE_TRY([[maybe_unused]] const std::span<const float> none,
           model_.forward(
               {.tokens = tokens, .sequences = sequences, .logit_rows = {}, .adapters = adapters}));
  JIGE_DO(pool_rows());
  for (Live& live : live_) live.done += live.step;
  return {};
}

Result<std::vector<std::vector<float>>> Embedder::embed(std::span<const EmbedInput> inputs,
                                                        const std::atomic<bool>* cancelled) {
  for (const EmbedInput& input : inputs) JIGE_DO(check(input));
  free_blocks_.resize(static_cast<size_t>(model_.sizes().kv_block_count));
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
  free_states_.resize(static_cast<size_t>(model_.sizes().state_count));
  std::iota(free_states_.begin(), free_states_.end(), 0);
  live_.clear();
  next_ = 0;
  std::vector<std::vector<float>> vectors(inputs.size());
  while (next_ < inputs.size() || !live_.empty()) {
    if (cancelled && cancelled->load()) return fail(Code::kCancelled, "by a signal");
    fill_step(inputs);
    JIGE_DO(run_step(inputs));
    for (const Live& live : live_) {
      if (live.done < std::ssize(inputs[live.input].tokens)) continue;
      JIGE_TRY(vectors[live.input], live.pooler.finish());
      free_blocks_.insert(free_blocks_.end(), live.blocks.begin(), live.blocks.end());
      if (has_states()) free_states_.push_back(live.state);
    }
    std::erase_if(live_, [&](const Live& live) {
      return live.done == std::ssize(inputs[live.input].tokens);
    });
  }
  return vectors;
}

}  // namespace jige::serve
