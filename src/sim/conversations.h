// Conversations of many users at once, for simulations of servers that know what prompts begin
// with: each begins with one of a few system prompts, and every turn's prompt is all that was said
// so far and a new question. From a seed.
//
//   Conversations talk({.user_count = 16, .conversation_count = 100, …});
//   const Turn turn = talk.next(user);              // its next request
//   …prompt: talk.prompt(turn)…  answer token k: talk.answer_token(turn, k)…
//
// Threads: none; one caller.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "sim/workload.h"

namespace jige::sim {

struct ConversationOptions {
  int64_t user_count = 16;
  int64_t conversation_count = 200;  // in all
  LengthDistribution turns{.low = 1, .high = 8};
  int64_t system_prompts = 4;
  double system_skew = 1;  // prompt k is as likely as 1 / k to this power; 0: all alike
  LengthDistribution system_tokens{.low = 300, .high = 300};
  LengthDistribution question_tokens{.low = 20, .high = 200};
  LengthDistribution answer_tokens{.low = 20, .high = 300};
  double think_s = 5;  // mean of the exponential time from an answer to the next question
  uint64_t seed = 1;
};

struct Turn {
  int64_t conversation = 0;
  int64_t number = 0;  // of the conversation's turns
  int64_t system = 0;  // its system prompt
  int64_t system_tokens = 0;
  int64_t prompt_tokens = 0;  // all of it
  int64_t answer_tokens = 0;
  double think_s = 0;  // in front of it
};

class Conversations {
 public:
  // REQUIRES: counts > 0 but system_prompts, which may be 0; lengths > 0.
  explicit Conversations(const ConversationOptions& options);

  // What the user asks next: the next turn of its conversation, or the first of a new one; nothing
  // when there are no more.
  std::optional<Turn> next(int64_t user);
  static std::vector<int32_t> prompt(const Turn& turn, uint64_t seed);
  // The token that stands behind the first `position` of prompt and answer.
  static int32_t token(const Turn& turn, int64_t position, uint64_t seed);

 private:
  struct User {
    std::optional<Turn> last;
    int64_t turns_left = 0;
  };
  int64_t draw_system(Rng& rng) const;

  ConversationOptions options_;
  std::vector<int64_t> system_tokens_;  // of each system prompt
  std::vector<double> system_shares_;   // up to each, of all
  std::vector<User> users_;
  int64_t begun_ = 0;
};

}  // namespace jige::sim
