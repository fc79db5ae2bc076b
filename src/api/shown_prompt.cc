#include "api/shown_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/token_text.h"

namespace jige::api {
namespace {

std::span<const ops::TokenLogProb> first_of(const std::vector<ops::TokenLogProb>& top,
                                            int32_t count) {
  return std::span(top).first(std::min(top.size(), static_cast<size_t>(count)));
}

Json scored_token(int32_t token, float logprob, int64_t rank, const text::Tokenizer& tokenizer) {
  return {{"logprob", shown_logprob(logprob)},
          {"rank", rank},
          {"decoded_token", text::token_text(tokenizer, token)}};
}

}  // namespace

EchoedPrompt echo_prompt(const ScoredPrompt& prompt, const text::Tokenizer& tokenizer) {
  const std::vector<int32_t>& ids = prompt.ids;
  EchoedPrompt echo;
  text::StreamDecoder decoder(tokenizer, {.skip_special = true});
  for (size_t i = 0; i < ids.size(); ++i) {
    // A model may have more rows than its tokenizer has tokens; those have no text.
    TokenEvent event{.token = ids[i], .text = decoder.push(ids[i]).value_or("")};
    if (i + 1 == ids.size()) event.text += decoder.flush();
    event.scored = i > 0 && i <= prompt.scores.size();
    if (event.scored) {
      const ops::TokenScore& score = prompt.scores[i - 1];
      const auto top = first_of(score.top, prompt.wishes.echo_top_count);
      event.logprob = score.logprob;
      event.top.assign(top.begin(), top.end());
    }
    echo.text += event.text;
    echo.tokens.push_back(std::move(event));
  }
  if (!prompt.text || *prompt.text == echo.text || echo.tokens.empty()) return echo;
  echo.text = *prompt.text;
  for (TokenEvent& event : echo.tokens) event.text.clear();
  echo.tokens.back().text = echo.text;
  return echo;
}

Json prompt_logprobs_json(const ScoredPrompt& prompt, const text::Tokenizer& tokenizer) {
  const std::vector<int32_t>& ids = prompt.ids;
  Json list = Json::array({nullptr});
  for (size_t i = 1; i < ids.size() && i <= prompt.scores.size(); ++i) {
    const ops::TokenScore& score = prompt.scores[i - 1];
    Json entry = {
        {std::to_string(ids[i]), scored_token(ids[i], score.logprob, score.rank, tokenizer)}};
    int64_t rank = 0;
    for (const ops::TokenLogProb& other : first_of(score.top, *prompt.wishes.prompt_logprobs)) {
      entry.emplace(std::to_string(other.token),
                    scored_token(other.token, other.logprob, ++rank, tokenizer));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace jige::api
