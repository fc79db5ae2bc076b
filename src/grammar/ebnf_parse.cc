#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/ascii.h"
#include "grammar/ebnf.h"
#include "grammar/pattern_reader.h"
#include "text/unicode.h"

namespace jige::grammar {
namespace {

constexpr size_t kNameBytesMax = 128;

bool is_name_character(char c) { return is_ascii_alphanumeric(c) || c == '-' || c == '_'; }

class EbnfParser : PatternReader {
 public:
  explicit EbnfParser(std::string_view source) : PatternReader(source, "the grammar") {}

  Result<Ebnf> parse() {
    JIGE_DO(check(kEbnfBytesMax));
    skip_space();
    while (at_ < source_.size()) JIGE_DO(rule());
    for (size_t i = 0; i < ebnf_.rules.size(); ++i) {
      if (is_defined_[i]) continue;
      at_ = ebnf_.rules[i].at;
      return wrong(fmt::format("the rule \"{}\" is not defined", ebnf_.rules[i].name));
    }
    const auto root = names_.find("root");
    if (root == names_.end()) {
      return fail(Code::kInvalidArgument, "the grammar has no rule \"root\"");
    }
    ebnf_.root = root->second;
    return std::move(ebnf_);
  }

 private:
  // White space and comments.
  void skip_space() {
    while (!ends()) {
      if (sees('#')) {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (sees(' ') || sees('\t') || sees('\n') || sees('\r')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const size_t begin = at_;
    while (!ends() && is_name_character(source_[at_])) ++at_;
    return source_.substr(begin, at_ - begin);
  }

  // Whether the next rule begins here.
  bool sees_definition() {
    const size_t here = at_;
    const bool named = !name().empty();
    skip_space();
    const bool found = named && take("::=");
    at_ = here;
    return found;
  }

  Result<size_t> rule_of(std::string_view name, size_t at) {
    const auto found = names_.find(std::string(name));
    if (found != names_.end()) return found->second;
    if (ebnf_.rules.size() >= kEbnfRulesMax || name.size() > kNameBytesMax) {
      return wrong(fmt::format("more than {} rules, or a name of more than {} bytes", kEbnfRulesMax,
                               kNameBytesMax));
    }
    ebnf_.rules.push_back({.name = std::string(name), .at = at, .body = {}});
    is_defined_.push_back(false);
    names_.emplace(name, ebnf_.rules.size() - 1);
    return ebnf_.rules.size() - 1;
  }

  Status rule() {
    const size_t begin = at_;
    const std::string_view named = name();
    if (named.empty()) return wrong("a rule must begin with its name");
    skip_space();
    if (!take("::=")) return wrong("behind the name of a rule \"::=\" must follow");
    JIGE_TRY(const size_t index, rule_of(named, begin));
    if (is_defined_[index]) {
      at_ = begin;
      return wrong(fmt::format("the rule \"{}\" is defined twice", named));
    }
    is_defined_[index] = true;
    JIGE_TRY(EbnfNode body, alternatives());
    if (!ends() && !sees_definition()) return wrong("this does not belong to a rule");
    ebnf_.rules[index].body = std::move(body);
    return {};
  }

  Result<EbnfNode> alternatives() {
    EbnfNode node{.kind = EbnfNode::Kind::kAlternatives};
    do {
      JIGE_TRY(EbnfNode part, sequence());
      node.parts.push_back(std::move(part));
    } while (take("|"));
    if (node.parts.size() > 1) return node;
    EbnfNode only = std::move(node.parts[0]);
    return only;
  }

  Result<EbnfNode> sequence() {
    EbnfNode node{.kind = EbnfNode::Kind::kSequence};
    for (;;) {
      skip_space();
      if (ends() || sees('|') || sees(')') || sees_definition()) return node;
      JIGE_TRY(EbnfNode part, repeated());
      node.parts.push_back(std::move(part));
    }
  }

  Result<EbnfNode> repeated() {
    JIGE_TRY(EbnfNode body, atom());
    skip_space();
    JIGE_TRY(std::optional<Counts> counts, quantifier());
    if (!counts) return body;
    skip_space();
    if (sees('*') || sees('+') || sees('?') || sees('{')) {
      return wrong("a repeat of a repeat; use a group");
    }
    EbnfNode node{.kind = EbnfNode::Kind::kRepeat, .counts = *counts};
    node.parts.push_back(std::move(body));
    return node;
  }

  Result<std::optional<Counts>> quantifier() {
    if (take("?")) return Counts{0, 1};
    if (take("*")) return Counts{0, kUnbounded};
    if (take("+")) return Counts{1, kUnbounded};
    if (!take("{")) return std::nullopt;
    skip_space();
    const std::optional<int32_t> min = take_number();
    Counts counts{min.value_or(0), min.value_or(0)};
    skip_space();
    std::optional<int32_t> max;
    if (take(",")) {
      skip_space();
      max = take_number();
      counts.max = max.value_or(kUnbounded);
      skip_space();
    }
    if ((!min && !max) || !take("}")) return wrong("a repeat must be {m}, {m,} or {m,n}");
    JIGE_DO(check_counts(counts));
    return counts;
  }

  Result<EbnfNode> atom() {
    if (take("(")) return group();
    if (take("\"")) return literal();
    EbnfNode node{.kind = EbnfNode::Kind::kCharacter};
    if (take("[")) {
      JIGE_TRY(node.characters, character_class());
      return node;
    }
    if (take(".")) {
      node.characters = CodePoints::all();
      return node;
    }
    const size_t begin = at_;
    const std::string_view named = name();
    if (named.empty()) return wrong("a text, a class, a group or the name of a rule is expected");
    node.kind = EbnfNode::Kind::kRule;
    JIGE_TRY(node.rule, rule_of(named, begin));
    return node;
  }

  Result<EbnfNode> group() {
    if (++depth_ > kEbnfDepthMax) {
      return wrong(fmt::format("groups nest more than {} deep", kEbnfDepthMax));
    }
    JIGE_TRY(EbnfNode node, alternatives());
    --depth_;
    if (!take(")")) return wrong("\")\" is missing");
    return node;
  }

  // Behind the quote.
  Result<EbnfNode> literal() {
    EbnfNode node{.kind = EbnfNode::Kind::kText};
    while (!take("\"")) {
      if (ends() || sees('\n')) return wrong("the quote at the end of a text is missing");
      JIGE_TRY(const char32_t character, item());
      text::append_utf8(node.text, character);
    }
    return node;
  }

  // Behind "[".
  Result<CodePoints> character_class() {
    const bool negated = take("^");
    CodePoints set;
    while (!take("]")) {
      if (ends() || sees('\n')) return wrong("\"]\" is missing");
      JIGE_TRY(const char32_t first, item());
      char32_t last = first;
      if (sees('-') && !sees("-]")) {
        ++at_;
        if (ends() || sees('\n')) return wrong("\"]\" is missing");
        JIGE_TRY(last, item());
      }
      if (last < first) return wrong("a range that runs back");
      set.add(first, last);
    }
    if (negated) set = set.complement();
    if (set.empty()) return wrong("a class that no character is of");
    return set;
  }

  // A character, perhaps escaped.
  Result<char32_t> item() {
    if (!take("\\")) return take_character();
    if (ends()) return wrong("a backslash at the end");
    const char32_t c = take_character();
    switch (c) {
      case 'n':
        return U'\n';
      case 't':
        return U'\t';
      case 'r':
        return U'\r';
      case 'x':
        return take_hex(2);
      case 'u':
        return take_hex(4);
      case 'U':
        return take_hex(8);
      default:
        break;
    }
    if (std::u32string_view(U"\"\\[]-^'/.").find(c) == std::u32string_view::npos) {
      return wrong(
          "of escapes \\n, \\t, \\r, \\x, \\u and \\U are known, and those of \" \\ [ ] - ^");
    }
    return c;
  }

  int depth_ = 0;
  Ebnf ebnf_;
  std::vector<bool> is_defined_;
  std::unordered_map<std::string, size_t> names_;
};

// Finds rules that can begin with themselves: to read one would never come to a character.
class LeftRecursion {
 public:
  explicit LeftRecursion(const Ebnf& ebnf) : ebnf_(ebnf), empties_(ebnf.rules.size()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < empties_.size(); ++i) {
        if (empties_[i] || !may_be_empty(ebnf.rules[i].body)) continue;
        empties_[i] = changed = true;
      }
    }
  }

  // A rule of a circle, if there is one.
  std::optional<size_t> find() const {
    std::vector<size_t> begins_with(
        ebnf_.rules.size());  // how many rules that are left begin with it
    std::vector<std::vector<size_t>> first(ebnf_.rules.size());
    for (size_t i = 0; i < first.size(); ++i) {
      add_first(ebnf_.rules[i].body, first[i]);
      for (const size_t rule : first[i]) ++begins_with[rule];
    }
    std::vector<size_t> open;
    size_t left = first.size();
    for (size_t i = 0; i < first.size(); ++i) {
      if (begins_with[i] == 0) open.push_back(i);
    }
    while (!open.empty()) {
      const size_t rule = open.back();
      open.pop_back();
      --left;
      for (const size_t next : first[rule]) {
        if (--begins_with[next] == 0) open.push_back(next);
      }
    }
    if (left == 0) return std::nullopt;
    // Who still counts is in a circle or behind one; going back leads into it.
    std::vector<size_t> before(first.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      for (const size_t next : first[i]) {
        if (begins_with[i] > 0) before[next] = i;
      }
    }
    size_t rule = static_cast<size_t>(
        std::ranges::find_if(begins_with, [](size_t count) { return count > 0; }) -
        begins_with.begin());
    for (size_t step = 0; step < first.size(); ++step) rule = before[rule];
    return rule;
  }

 private:
  bool may_be_empty(const EbnfNode& node) const {
    const auto empty = [this](const EbnfNode& part) { return may_be_empty(part); };
    switch (node.kind) {
      case EbnfNode::Kind::kText:
        return node.text.empty();
      case EbnfNode::Kind::kCharacter:
        return false;
      case EbnfNode::Kind::kRule:
        return empties_[node.rule];
      case EbnfNode::Kind::kSequence:
        return std::ranges::all_of(node.parts, empty);
      case EbnfNode::Kind::kAlternatives:
        return std::ranges::any_of(node.parts, empty);
      case EbnfNode::Kind::kRepeat:
        return node.counts.min == 0 || may_be_empty(node.parts[0]);
    }
    return false;
  }

  // The rules that a node can begin with.
  void add_first(const EbnfNode& node, std::vector<size_t>& rules) const {
    if (node.kind == EbnfNode::Kind::kRule) rules.push_back(node.rule);
    for (const EbnfNode& part : node.parts) {
      add_first(part, rules);
      if (node.kind == EbnfNode::Kind::kSequence && !may_be_empty(part)) return;
    }
  }

  const Ebnf& ebnf_;
  std::vector<bool> empties_;
};

}  // namespace

Result<Ebnf> parse_ebnf(std::string_view source) {
  JIGE_TRY(Ebnf ebnf, EbnfParser(source).parse());
  if (const auto rule = LeftRecursion(ebnf).find()) {
    const EbnfRule& found = ebnf.rules[*rule];
    return fail(
        Code::kInvalidArgument,
        "the rule \"{}\" of the grammar can begin with itself; say it with a repeat, as in a "
        "::= b (\"+\" b)*",
        found.name);
  }
  return ebnf;
}

}  // namespace jige::grammar
