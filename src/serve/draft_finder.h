// DraftFinder: guesses how a sequence goes on, from what it holds already.
//
//   DraftFinder finder(context_max);
//   finder.follow({prompt, generated});
//   if (finder.equal_tokens() > 0) finder.draft({prompt, generated}, 8, draft);
//
// The last four tokens, or else the last two, are looked up among the n-grams before them; what
// followed their latest occurrence is the draft. Where the copy runs into the sequence's end it
// goes on with itself, so that a text that repeats with a short period is continued at any length.
// A table of a fixed size maps the hash of an n-gram to the place behind its latest occurrence. An
// entry may be overwritten by another n-gram's, so a place found is compared token by token: a
// draft never comes from other tokens than these, and no choice of tokens costs more than a few
// comparisons a token.
//
// Invariants: memory is bytes_for(tokens_max) from construction on, and follow() takes O(1) a
// token. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace jige::serve {

// A prompt and what was generated behind it.
struct TokenSequence {
  std::span<const int32_t> prompt;
  std::span<const int32_t> generated;
  size_t size() const { return prompt.size() + generated.size(); }
  int32_t operator[](size_t i) const {
    return i < prompt.size() ? prompt[i] : generated[i - prompt.size()];
  }
};

inline constexpr size_t kDraftOrders[] = {4, 2};  // lengths of n-grams, by level
inline constexpr int32_t kDraftLevelCount = 2;
inline constexpr size_t kEqualTokensMax = 8;  // that are counted

class DraftFinder {
 public:
  // For sequences of up to `tokens_max` tokens; longer ones forget their oldest n-grams sooner.
  explicit DraftFinder(int64_t tokens_max);
  static int64_t bytes_for(int64_t tokens_max);

  // Forgets the sequence, so that another can begin.
  void clear();
  // Takes in the tokens that are new since the last call. REQUIRES: the others are as they were.
  void follow(const TokenSequence& tokens);
  // How many of the last tokens stand before what would be copied, too, up to kEqualTokensMax: at
  // least as many as an n-gram has; 0: nothing was found.
  size_t equal_tokens() const { return equal_tokens_; }
  // Appends `count` guesses to an empty draft. REQUIRES: equal_tokens() > 0, tokens as in follow().
  void draft(const TokenSequence& tokens, int32_t count, std::vector<int32_t>& draft) const;

 private:
  size_t slot(const TokenSequence& tokens, size_t end, int32_t level) const;
  void look_up(const TokenSequence& tokens);

  size_t slot_mask_;
  std::vector<int32_t> places_;  // by level and slot; 0: none
  size_t followed_ = 0;
  size_t equal_tokens_ = 0;
  size_t source_ = 0;  // what the first guess is copied from
};

}  // namespace jige::serve
