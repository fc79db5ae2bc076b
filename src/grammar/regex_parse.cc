#include <optional>
#include <string>
#include <utility>

#include "grammar/pattern_reader.h"
#include "grammar/regex.h"

namespace jige::grammar {
namespace {

CodePoints digits() { return CodePoints().add('0', '9'); }
CodePoints word_characters() {
  return CodePoints().add('0', '9').add('A', 'Z').add('_', '_').add('a', 'z');
}
CodePoints spaces() { return CodePoints().add('\t', '\r').add(' ', ' '); }

class RegexParser : PatternReader {
 public:
  explicit RegexParser(std::string_view pattern) : PatternReader(pattern, "the expression") {}

  Result<RegexNode> parse() {
    JIGE_DO(check(kRegexBytesMax));
    JIGE_TRY(RegexNode node, alternatives());
    if (at_ < source_.size()) return wrong("\")\" closes nothing");
    return node;
  }

 private:
  Result<RegexNode> alternatives() {
    RegexNode node{.kind = RegexNode::Kind::kAlternatives};
    do {
      if (depth_ == 0) take("^");
      JIGE_TRY(RegexNode part, sequence());
      node.parts.push_back(std::move(part));
    } while (take("|"));
    if (node.parts.size() > 1) return node;
    RegexNode only = std::move(node.parts[0]);
    return only;
  }

  Result<RegexNode> sequence() {
    RegexNode node{.kind = RegexNode::Kind::kSequence};
    while (!ends() && !sees('|') && !sees(')')) {
      if (depth_ == 0 && sees('$')) {
        ++at_;
        if (!ends() && !sees('|')) return wrong("behind \"$\" nothing can follow");
        break;
      }
      JIGE_TRY(RegexNode part, repeated());
      node.parts.push_back(std::move(part));
    }
    return node;
  }

  Result<RegexNode> repeated() {
    JIGE_TRY(RegexNode body, atom());
    JIGE_TRY(const std::optional<Counts> counts, quantifier());
    if (!counts) return body;
    take("?");  // lazy: the same texts
    const size_t here = at_;
    JIGE_TRY(const std::optional<Counts> second, quantifier());
    if (second) {
      at_ = here;
      return wrong("a repeat of a repeat, or a possessive one; use a group");
    }
    RegexNode node{.kind = RegexNode::Kind::kRepeat, .counts = *counts};
    node.parts.push_back(std::move(body));
    return node;
  }

  Result<std::optional<Counts>> quantifier() {
    if (take("?")) return Counts{0, 1};
    if (take("*")) return Counts{0, kUnbounded};
    if (take("+")) return Counts{1, kUnbounded};
    if (!sees('{')) return std::nullopt;
    const size_t begin = at_++;
    const std::optional<int32_t> min = take_number();
    Counts counts{min.value_or(0), min.value_or(0)};
    if (take(",")) counts.max = take_number().value_or(kUnbounded);
    if (!min || !take("}")) {  // an ordinary brace
      at_ = begin;
      return std::nullopt;
    }
    JIGE_DO(check_counts(counts));
    return counts;
  }

  Result<RegexNode> atom() {
    if (take("(")) return group();
    RegexNode node{.kind = RegexNode::Kind::kCharacter};
    if (take("[")) {
      JIGE_TRY(node.characters, character_class());
    } else if (take(".")) {
      node.characters = CodePoints::of('\n').complement();
    } else if (take("\\")) {
      JIGE_TRY(node.characters, escape());
    } else if (sees('*') || sees('+') || sees('?')) {
      return wrong("there is nothing to repeat");
    } else if (sees('^') || sees('$')) {
      return wrong("\"^\" and \"$\" are taken at the ends alone; the whole text must match anyway");
    } else {
      node.characters = CodePoints::of(take_character());
    }
    return node;
  }

  Result<RegexNode> group() {
    if (take("?:")) {
    } else if (sees('?')) {
      return wrong("of groups with \"?\" only (?:…) is taken");
    }
    if (++depth_ > kRegexDepthMax) {
      return wrong(fmt::format("groups nest more than {} deep", kRegexDepthMax));
    }
    JIGE_TRY(RegexNode node, alternatives());
    --depth_;
    if (!take(")")) return wrong("\")\" is missing");
    return node;
  }

  // Behind "[".
  Result<CodePoints> character_class() {
    const bool negated = take("^");
    CodePoints set;
    bool first = true;
    while (!sees(']') || first) {
      first = false;
      if (ends()) return wrong("\"]\" is missing");
      JIGE_TRY(const CodePoints begin, class_item());
      if (!sees('-') || sees("-]")) {
        set.add(begin);
        continue;
      }
      ++at_;
      if (ends()) return wrong("\"]\" is missing");
      JIGE_TRY(const CodePoints end, class_item());
      if (!is_single(begin) || !is_single(end)) return wrong("a range between classes");
      if (end.ranges()[0].first < begin.ranges()[0].first) return wrong("a range that runs back");
      set.add(begin.ranges()[0].first, end.ranges()[0].first);
    }
    ++at_;
    if (negated) set = set.complement();
    if (set.empty()) return wrong("a class that no character is of");
    return set;
  }

  Result<CodePoints> class_item() {
    if (take("\\")) {
      if (take("b")) return CodePoints::of('\b');
      if (take("-")) return CodePoints::of('-');
      return escape();
    }
    return CodePoints::of(take_character());
  }

  static bool is_single(const CodePoints& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  // Behind the backslash.
  Result<CodePoints> escape() {
    if (ends()) return wrong("a backslash at the end");
    const char32_t c = take_character();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 'n':
        return CodePoints::of('\n');
      case 't':
        return CodePoints::of('\t');
      case 'r':
        return CodePoints::of('\r');
      case 'f':
        return CodePoints::of('\f');
      case 'v':
        return CodePoints::of('\v');
      case '0':
        return CodePoints::of(0);
      case 'x':
        return by_number(2);
      case 'u':
        return by_number(4);
      default:
        break;
    }
    const bool alphanumeric = c < 0x80 && word_characters().contains(c) && c != '_';
    if (alphanumeric) {
      return wrong(fmt::format("\\{} is not supported", static_cast<char>(c)));
    }
    return CodePoints::of(c);
  }

  Result<CodePoints> by_number(int digit_count) {
    JIGE_TRY(const char32_t character, take_hex(digit_count));
    return CodePoints::of(character);
  }

  int depth_ = 0;
};

}  // namespace

Result<RegexNode> parse_regex(std::string_view pattern) { return RegexParser(pattern).parse(); }

}  // namespace jige::grammar
