#include "train/reward_rules.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/check.h"
#include "text/regex.h"

namespace jige::train {
namespace {

constexpr std::array<std::string_view, 4> kRuleNames = {"exact", "contains", "number", "regex"};
constexpr size_t kGroupDigits = 3;  // between commas

std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits at `at`, and those in threes behind commas; moves `at` behind them.
std::string take_digits(std::string_view text, size_t& at, bool commas) {
  std::string digits;
  while (at < text.size()) {
    if (is_digit(text[at])) {
      digits += text[at++];
      continue;
    }
    const std::string_view group = text.substr(at + 1, kGroupDigits);
    size_t count = 0;
    while (count < group.size() && is_digit(group[count])) ++count;
    const size_t behind = at + 1 + kGroupDigits;
    const bool ends = behind >= text.size() || !is_digit(text[behind]);
    if (!commas || text[at] != ',' || count < kGroupDigits || !ends) break;
    digits += group;
    at = behind;
  }
  return digits;
}

// As it is written without what changes nothing.
std::string plain_number(bool negative, std::string whole, std::string part) {
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  part.erase(part.find_last_not_of('0') + 1);
  if (whole.empty()) whole = "0";
  if (whole == "0" && part.empty()) return whole;
  return (negative ? "-" : "") + whole + (part.empty() ? "" : "." + part);
}

}  // namespace

std::string_view reward_rule_name(RewardRule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

std::vector<std::string> reward_rule_names() { return {kRuleNames.begin(), kRuleNames.end()}; }

RewardRule read_reward_rule(std::string_view name) {
  for (size_t i = 0; i < kRuleNames.size(); ++i) {
    if (kRuleNames[i] == name) return static_cast<RewardRule>(i);
  }
  JIGE_CHECK(false, "no rule for rewards is named {}", name);
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> last;
  for (size_t at = 0; at < text.size();) {
    const bool point_first = text[at] == '.' && at + 1 < text.size() && is_digit(text[at + 1]);
    if (!is_digit(text[at]) && !point_first) {
      ++at;
      continue;
    }
    const bool signed_ = at > 0 && text[at - 1] == '-';
    // Of "5-3" and "a-3" the line is no sign.
    const bool negative = signed_ && (at < 2 || !is_ascii_alphanumeric(text[at - 2]));
    const std::string whole = take_digits(text, at, true);
    std::string part;
    if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
      part = take_digits(text, ++at, false);
    }
    last = plain_number(negative, whole, part);
  }
  return last;
}

Status check_known_answer(RewardRule rule, const std::string& answer, const std::string& where) {
  const auto refuse = [&](std::string_view what) -> Status {
    return fail(Code::kInvalidArgument, "{}: field \"answer\" {}, so nothing can be {} it", where,
                what, rule == RewardRule::kNumber ? "the same as" : "held against");
  };
  if (without_space(answer).empty()) return refuse("is empty");
  if (rule == RewardRule::kNumber && !last_number(answer)) return refuse("holds no number");
  if (rule != RewardRule::kRegex) return {};
  JIGE_TRY([[maybe_unused]] const text::Regex pattern,
           text::Regex::compile(answer, where + ": field \"answer\""));
  return {};
}

double rule_reward(RewardRule rule, std::string_view text, const std::string& answer) {
  switch (rule) {
    case RewardRule::kExact:
      return without_space(text) == without_space(answer) ? 1 : 0;
    case RewardRule::kContains:
      return text.find(without_space(answer)) != std::string_view::npos ? 1 : 0;
    case RewardRule::kNumber: {
      const std::optional<std::string> number = last_number(text);
      return number && number == last_number(answer) ? 1 : 0;
    }
    case RewardRule::kRegex:
      break;
  }
  const auto pattern = text::Regex::compile(answer, "answer");
  JIGE_CHECK(pattern, "a pattern that was checked: {}", answer);
  text::RegexScratch scratch;
  text::Regex::Scan scan(*pattern, text, scratch);
  text::Range match;
  return scan.next(match).value_or(false) ? 1 : 0;
}

}  // namespace jige::train
