#include "serve/guess_row.h"

#include <algorithm>
#include <optional>

namespace jige::serve {
namespace {

using plan::GuessSource;

GuessSource source_of(const Answer::Forced& forced) {
  return forced.only ? GuessSource::kOnly : GuessSource::kForced;
}

}  // namespace

void add_forced(Answer& ahead, size_t count_max, GuessRow& row) {
  while (row.size() < count_max && !ahead.done()) {
    const std::optional<Answer::Forced> forced = ahead.forced();
    if (!forced || !ahead.follow(forced->token)) return;
    row.add(forced->token, source_of(*forced));
  }
}

void add_copy(const CopyRules& rules, std::span<const int32_t> copy, GuessSource source,
              size_t count_max, GuessRow& row) {
  // It is the text's that goes on with these, not a copy of something else.
  const size_t known = std::min(row.size(), copy.size());
  if (!std::ranges::equal(row.tokens, copy.first(known))) return;
  Answer* const ahead = rules.ahead;
  for (size_t i = row.size(); i < std::min(copy.size(), count_max); ++i) {
    if (ahead && ahead->done()) return;
    const std::optional<Answer::Forced> forced =
        ahead && rules.forced ? ahead->forced() : std::nullopt;
    if (forced && forced->token != copy[i]) return;
    if (ahead && !ahead->follow(copy[i])) return;
    row.add(copy[i], forced ? source_of(*forced) : source);
  }
}

}  // namespace jige::serve
