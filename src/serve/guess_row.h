// GuessRow: tokens that are guessed behind a sequence, with the source of each
// (plan/guess_policy.h), and how rules and copies of the text make one.
//
//   GuessRow row;
//   Answer ahead = answer.ahead();
//   add_forced(ahead, 8, row);                     // what its constraint forces
//   add_copy({&ahead, true}, copy, source, 8, row);  // copies, and what is forced among them
//
// An answer ahead stands behind the row all the time, so that others can go on from there.
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/guess_policy.h"
#include "serve/answer.h"

namespace jige::serve {

struct GuessRow {
  std::vector<int32_t> tokens;
  std::vector<plan::GuessSource> sources;  // one a token

  size_t size() const { return tokens.size(); }
  bool empty() const { return tokens.empty(); }
  void add(int32_t token, plan::GuessSource source) {
    tokens.push_back(token);
    sources.push_back(source);
  }
  void clear() {
    tokens.clear();
    sources.clear();
  }
  GuessRow first(size_t count) const {
    const auto end = static_cast<std::ptrdiff_t>(count);
    return {{tokens.begin(), tokens.begin() + end}, {sources.begin(), sources.begin() + end}};
  }
};

// Appends what has to come, up to `count_max` guesses in all.
void add_forced(Answer& ahead, size_t count_max, GuessRow& row);
// The rules that a copy keeps to.
struct CopyRules {
  Answer* ahead = nullptr;  // stands behind the row; null: there are none
  bool forced = true;       // what they force is told apart, and ends a copy of something else
};
// Appends what `copy` has, which begins where the row does, up to `count_max` guesses in all and to
// where the answer may not have it.
void add_copy(const CopyRules& rules, std::span<const int32_t> copy, plan::GuessSource source,
              size_t count_max, GuessRow& row);

}  // namespace jige::serve
