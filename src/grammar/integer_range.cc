#include "grammar/integer_range.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace jige::grammar {
namespace {

// Numbers of so many digits, from the one of `low` to that of `high`, digit by digit.
class DigitRange {
 public:
  DigitRange(GrammarBuilder& builder, NodeId next) : builder_(builder), any_{next} {}

  // REQUIRES: both have as many digits, low <= high.
  NodeId between(std::string_view low, std::string_view high) {
    if (low.empty()) return any(0);
    if (low[0] == high[0]) return builder_.byte(low[0], between(low.substr(1), high.substr(1)));
    std::vector<NodeId> branches = {builder_.byte(low[0], at_least(low.substr(1))),
                                    builder_.byte(high[0], at_most(high.substr(1)))};
    add_digits(branches, low[0] + 1, high[0] - 1, low.size() - 1);
    return builder_.split(branches);
  }

 private:
  NodeId at_least(std::string_view low) {
    if (low.empty()) return any(0);
    std::vector<NodeId> branches = {builder_.byte(low[0], at_least(low.substr(1)))};
    add_digits(branches, low[0] + 1, '9', low.size() - 1);
    return builder_.split(branches);
  }

  NodeId at_most(std::string_view high) {
    if (high.empty()) return any(0);
    std::vector<NodeId> branches = {builder_.byte(high[0], at_most(high.substr(1)))};
    add_digits(branches, '0', high[0] - 1, high.size() - 1);
    return builder_.split(branches);
  }

  // A digit from `first` to `last`, and so many of any kind.
  void add_digits(std::vector<NodeId>& branches, int first, int last, size_t more) {
    if (first <= last) branches.push_back(builder_.bytes(digits(first, last), any(more)));
  }

  NodeId any(size_t count) {
    while (any_.size() <= count) any_.push_back(builder_.bytes(digits('0', '9'), any_.back()));
    return any_[count];
  }

  static ByteSet digits(int first, int last) {
    ByteSet set;
    for (int digit = first; digit <= last; ++digit) set.set(static_cast<size_t>(digit));
    return set;
  }

  GrammarBuilder& builder_;
  std::vector<NodeId> any_;  // so many digits, then what follows
};

// Appends the numbers without a sign, grouped by how many digits they have.
void add_magnitudes(DigitRange& digits, int64_t low, int64_t high, std::vector<NodeId>& branches) {
  for (int64_t least = low; least <= high;) {
    const std::string first = std::to_string(least);
    const std::string most(first.size(), '9');
    const std::string last = std::to_string(std::min(high, static_cast<int64_t>(std::stoll(most))));
    branches.push_back(digits.between(first, last));
    least = std::stoll(most) + 1;
  }
}

}  // namespace

NodeId integer_within(GrammarBuilder& builder, IntegerRange range, NodeId next) {
  DigitRange digits(builder, next);
  std::vector<NodeId> branches;
  add_magnitudes(digits, std::max<int64_t>(range.low, 0), range.high, branches);
  std::vector<NodeId> negative;
  add_magnitudes(digits, std::max<int64_t>(-range.high, 1), -range.low, negative);
  if (!negative.empty()) branches.push_back(builder.byte('-', builder.split(negative)));
  return builder.split(branches);
}

}  // namespace jige::grammar
