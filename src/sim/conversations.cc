#include "sim/conversations.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace jige::sim {

Conversations::Conversations(const ConversationOptions& options)
    : options_(options), users_(static_cast<size_t>(options.user_count)) {
  JIGE_CHECK(options.user_count > 0 && options.conversation_count > 0, "somebody must talk");
  Rng rng(derive_key(options.seed, "system prompts"));
  double sum = 0;
  for (int64_t i = 0; i < options.system_prompts; ++i) {
    system_tokens_.push_back(options.system_tokens.draw(rng));
    sum += std::pow(static_cast<double>(i + 1), -options.system_skew);
    system_shares_.push_back(sum);
  }
  for (double& share : system_shares_) share /= sum;
}

int64_t Conversations::draw_system(Rng& rng) const {
  const auto found = std::ranges::lower_bound(system_shares_, rng.uniform());
  const int64_t index = found - system_shares_.begin();
  return std::min(index, options_.system_prompts - 1);
}

std::optional<Turn> Conversations::next(int64_t user_index) {
  User& user = users_[static_cast<size_t>(user_index)];
  Turn turn;
  if (user.turns_left > 0) {
    turn = *user.last;
    ++turn.number;
    turn.prompt_tokens += turn.answer_tokens;
  } else {
    if (begun_ == options_.conversation_count) return std::nullopt;
    turn.conversation = begun_++;
    Rng rng(derive_key(options_.seed, "conversation", static_cast<uint64_t>(turn.conversation)));
    user.turns_left = options_.turns.draw(rng);
    if (options_.system_prompts > 0) {
      turn.system = draw_system(rng);
      turn.system_tokens = system_tokens_[static_cast<size_t>(turn.system)];
    }
    turn.prompt_tokens = turn.system_tokens;
  }
  // By conversation and turn, so that who has it, and when, changes nothing of it.
  Rng rng(derive_key(derive_key(options_.seed, "turn", static_cast<uint64_t>(turn.conversation)),
                     "number", static_cast<uint64_t>(turn.number)));
  turn.prompt_tokens += options_.question_tokens.draw(rng);
  turn.answer_tokens = options_.answer_tokens.draw(rng);
  turn.think_s = -std::log(1 - rng.uniform()) * options_.think_s;
  --user.turns_left;
  user.last = turn;
  return turn;
}

int32_t Conversations::token(const Turn& turn, int64_t position, uint64_t seed) {
  const bool of_system = position < turn.system_tokens;
  const auto whose = static_cast<uint64_t>(of_system ? turn.system : turn.conversation);
  const auto drawn =
      philox(seed ^ (of_system ? 0x5eedull << 32 : 0), whose, static_cast<uint64_t>(position));
  return static_cast<int32_t>(drawn[0] >> 1);
}

std::vector<int32_t> Conversations::prompt(const Turn& turn, uint64_t seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(turn.prompt_tokens));
  for (int64_t i = 0; i < turn.prompt_tokens; ++i) {
    tokens[static_cast<size_t>(i)] = token(turn, i, seed);
  }
  return tokens;
}

}  // namespace jige::sim
