// Rules that say how much an answer is worth beside the one that is known: 1 or 0.
//
//   exact     the same text, white space around both aside
//   contains  the known answer is somewhere in the text
//   number    the last number of the text is the last one of the known answer; "1,234.50" is 1234.5
//   regex     the known answer is a pattern (text/regex.h) that matches somewhere in the text
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::train {

enum class RewardRule { kExact, kContains, kNumber, kRegex };

std::string_view reward_rule_name(RewardRule rule);
std::vector<std::string> reward_rule_names();
// REQUIRES: one of these.
RewardRule read_reward_rule(std::string_view name);

// The last number of a text without signs, commas and zeros that change nothing: "-3", "0.5".
std::optional<std::string> last_number(std::string_view text);

// Whether a rule can judge by such an answer, `where` before every error: one that is not empty, a
// number, a pattern that compiles. Fails with kInvalidArgument, and as Regex::compile.
Status check_known_answer(RewardRule rule, const std::string& answer, const std::string& where);

// What a text is worth. One that a pattern cannot be held against within bounds is worth 0.
// REQUIRES: check_known_answer(rule, answer, …).
double rule_reward(RewardRule rule, std::string_view text, const std::string& answer);

}  // namespace jige::train
