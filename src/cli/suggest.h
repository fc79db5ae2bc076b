// "Did you mean": the known name nearest to a mistyped one.
//
// Distance: insertions, deletions, replacements and swaps of neighbours, each one step.
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace jige::cli {

// Steps between two words (restricted Damerau–Levenshtein).
int edit_distance(std::string_view typed, std::string_view known);

// The name fewest steps away, or "" when none is near: at most a third of its length, and at least
// one step for short names. A name that starts with what was typed counts as near.
std::string nearest_name(std::string_view typed, std::span<const std::string> names);

// "; did you mean X?" or "", to be put behind a message.
std::string suggestion(std::string_view typed, std::span<const std::string> names);

}  // namespace jige::cli
