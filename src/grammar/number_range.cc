#include "grammar/number_range.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/integer_range.h"
#include "grammar/json_rules.h"

namespace jige::grammar {
namespace {

// Numbers without a sign, digit by digit.
class Magnitudes {
 public:
  Magnitudes(GrammarBuilder& builder, NodeId next) : builder_(builder), next_(next), any_{next} {}

  // Appends those from `low` to `high`; null: no bound.
  void add(const NumberBound& low, const NumberBound* high, std::vector<NodeId>& branches) {
    if (std::ssize(low.whole) > kDigitsMax) return;
    if (high && std::ssize(high->whole) > kDigitsMax) high = nullptr;
    if (high && high->whole == low.whole) {
      return add_whole(low.whole, {behind(low), behind(*high)}, branches);
    }
    const int64_t first = std::stoll(low.whole) + 1;
    const int64_t last = high ? std::stoll(high->whole) - 1 : kIntegerMax;
    if (last < first - 1) return;
    add_whole(low.whole, {.low = behind(low)}, branches);
    if (first <= last) branches.push_back(integer_within(builder_, {first, last}, *fraction({})));
    if (high) add_whole(high->whole, {.high = behind(*high)}, branches);
  }

 private:
  // What the digits to come are compared with while those before are those of the bound.
  struct Edge {
    std::string_view digits;
    bool is_exclusive;

    char first() const { return digits.empty() ? '0' : digits[0]; }
    Edge rest() const { return {digits.substr(digits.empty() ? 0 : 1), is_exclusive}; }
  };
  struct Edges {
    std::optional<Edge> low = {};
    std::optional<Edge> high = {};

    bool allow_end() const {
      return (!low || (low->digits.empty() && !low->is_exclusive)) &&
             (!high || !high->digits.empty() || !high->is_exclusive);
    }
  };

  static Edge behind(const NumberBound& bound) { return {bound.fraction, bound.is_exclusive}; }

  void add_whole(const std::string& whole, const Edges& edges, std::vector<NodeId>& branches) {
    if (const auto rest = fraction(edges)) branches.push_back(builder_.text(whole, *rest));
  }

  // Nothing, or a point and digits.
  std::optional<NodeId> fraction(const Edges& edges) {
    std::optional<NodeId> digits = some_digits(edges, kDigitsMax);
    if (digits) digits = builder_.byte('.', *digits);
    return edges.allow_end() ? either(next_, digits) : digits;
  }

  // Up to `count` digits.
  std::optional<NodeId> digits(const Edges& edges, int32_t count) {
    if (!edges.low && !edges.high) return any(count);
    const std::optional<NodeId> some = some_digits(edges, count);
    return edges.allow_end() ? either(next_, some) : some;
  }

  // One digit at least.
  std::optional<NodeId> some_digits(const Edges& edges, int32_t count) {
    const char first = edges.low ? edges.low->first() : '0';
    const char last = edges.high ? edges.high->first() : '9';
    if (count == 0 || first > last) return std::nullopt;
    std::vector<NodeId> branches;
    const auto add = [&](char digit, const Edges& rest) {
      if (const auto node = digits(rest, count - 1))
        branches.push_back(builder_.byte(digit, *node));
    };
    Edges rest;
    if (edges.low) rest.low = edges.low->rest();
    if (edges.high) rest.high = edges.high->rest();
    if (edges.low && edges.high && first == last) {
      add(first, rest);
    } else {
      if (edges.low) add(first, {.low = rest.low});
      if (edges.high) add(last, {.high = rest.high});
      add_between(first + (edges.low ? 1 : 0), last - (edges.high ? 1 : 0), count - 1, branches);
    }
    if (branches.empty()) return std::nullopt;
    return builder_.split(branches);
  }

  // A digit from `first` to `last`, and up to `count` of any kind.
  void add_between(int first, int last, int32_t count, std::vector<NodeId>& branches) {
    ByteSet set;
    for (int digit = first; digit <= last; ++digit) set.set(static_cast<size_t>(digit));
    if (set.any()) branches.push_back(builder_.bytes(set, any(count)));
  }

  NodeId any(int32_t count) {
    while (std::ssize(any_) <= count) {
      std::vector<NodeId> branches = {next_};
      add_between('0', '9', static_cast<int32_t>(any_.size()) - 1, branches);
      any_.push_back(builder_.split(branches));
    }
    return any_[static_cast<size_t>(count)];
  }

  NodeId either(NodeId node, std::optional<NodeId> other) {
    return other ? builder_.split({node, *other}) : node;
  }

  GrammarBuilder& builder_;
  const NodeId next_;
  std::vector<NodeId> any_;  // up to so many digits
};

// Below 0, 0 or above it as `a` is less than, equal to or above `b`.
int compare_magnitudes(const NumberBound& a, const NumberBound& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

int compare(const NumberBound& a, const NumberBound& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  return a.is_negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

std::string plain_text(const Json& number) {
  if (number.is_number_unsigned()) return std::to_string(number.get<uint64_t>());
  if (number.is_number_integer()) return std::to_string(number.get<int64_t>());
  std::array<char, 1100> text;  // the longest has 309 digits before the point, or 1074 behind it
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number.get<double>(),
                                 std::chars_format::fixed);
  JIGE_CHECK(end.ec == std::errc(), "a number of JSON has no plain text");
  return {text.data(), end.ptr};
}

}  // namespace

NumberBound NumberBound::from_json(const Json& number, bool is_exclusive) {
  std::string text = plain_text(number);
  NumberBound bound{.is_exclusive = is_exclusive};
  bound.is_negative = text.starts_with('-');
  if (bound.is_negative) text.erase(0, 1);
  const size_t point = std::min(text.find('.'), text.size());
  bound.whole = text.substr(0, point);
  if (point < text.size()) bound.fraction = text.substr(point + 1);
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.whole == "0" && bound.fraction.empty()) bound.is_negative = false;
  return bound;
}

void NumberRange::raise_low(NumberBound bound) {
  const int order = low ? compare(bound, *low) : 1;
  if (order > 0 || (order == 0 && bound.is_exclusive)) low = std::move(bound);
}

void NumberRange::lower_high(NumberBound bound) {
  const int order = high ? compare(bound, *high) : -1;
  if (order < 0 || (order == 0 && bound.is_exclusive)) high = std::move(bound);
}

std::optional<NodeId> number_within(GrammarBuilder& builder, const NumberRange& range,
                                    NodeId next) {
  const NumberBound* low = range.low ? &*range.low : nullptr;
  const NumberBound* high = range.high ? &*range.high : nullptr;
  Magnitudes magnitudes(builder, next);
  std::vector<NodeId> branches;
  if (!high || !high->is_negative) {
    const NumberBound zero;
    magnitudes.add(low && !low->is_negative ? *low : zero, high, branches);
  }
  if (!low || low->is_negative) {
    const NumberBound zero{.is_exclusive = true};
    std::vector<NodeId> negative;
    magnitudes.add(high && high->is_negative ? *high : zero, low, negative);
    if (!negative.empty()) branches.push_back(builder.byte('-', builder.split(negative)));
  }
  if (branches.empty()) return std::nullopt;
  return builder.split(branches);
}

}  // namespace jige::grammar
