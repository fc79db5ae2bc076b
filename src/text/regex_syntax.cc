#include "text/regex_syntax.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace jige::text {
namespace {

// What the escapes mean in Oniguruma, as items inside a class.
constexpr std::string_view kSpaceItems = "\\t-\\r\\x{85}\\p{Z}";
constexpr std::string_view kWordItems =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
// Outside a class, Oniguruma's \w and \W count these superscripts and fractions as word characters.
constexpr std::string_view kLoneWordItems = "\\xB2\\xB3\\xB9\\xBC-\\xBE";
constexpr std::string_view kPunctuationItems = "\\p{P}\\p{S}";
constexpr std::string_view kHexItems = "0-9a-fA-F";
constexpr int kClassDepthMax = 50;

constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kLongNames = {{
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Other", "C"},
}};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  Result<std::string> run() {
    while (at_ < in_.size()) JIGE_DO(step());
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  tl::unexpected<Error> refuse(std::string_view what) const {
    return fail(Code::kUnsupported,
                "{}: the pattern \"{}\" uses {} at byte {}, which is not supported", where_, in_,
                what, at_);
  }

  void copy(size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += std::min(count, in_.size() - at_);
  }

  Status step() {
    switch (peek()) {
      case '\\':
        return escape(/*in_class=*/false);
      case '[':
        return character_class();
      case '(':
        return group();
      case '{':
        return interval();
      default:
        copy(1);
        return {};
    }
  }

  Status escape(bool in_class) {
    const char kind = peek(1);
    switch (kind) {
      case 's':
        return items(kSpaceItems, in_class);
      case 'w':
        return items(in_class ? std::string(kWordItems) : lone_word(), in_class);
      case 'h':
        return items(kHexItems, in_class);
      case 'S':
        return negated_items(kSpaceItems, in_class, "\\S inside a class");
      case 'W':
        return negated_items(lone_word(), in_class, "\\W inside a class");
      case 'H':
        return negated_items(kHexItems, in_class, "\\H inside a class");
      case 'b':
        // In a class it is the backspace character, in PCRE2 too.
        return in_class ? plain_escape() : word_border("(?:(?<=W)(?!W)|(?<!W)(?=W))");
      case 'B':
        return in_class ? plain_escape() : word_border("(?:(?<=W)(?=W)|(?<!W)(?!W))");
      case 'p':
      case 'P':
        return property();
      case 'u':
        return code_unit();
      case 'K':
      case 'C':
      case 'Q':
      case 'E':
        return refuse(std::string("\\") + kind);
      case '\0':
        if (at_ + 1 >= in_.size()) {
          return fail(Code::kCorrupt, "{}: the pattern \"{}\" ends in a backslash", where_, in_);
        }
        return plain_escape();
      default:
        return plain_escape();
    }
  }

  // An escape that both libraries read alike.
  Status plain_escape() {
    copy(2);
    return {};
  }

  // A look-around in which W stands for a word character: PCRE2's \b has fewer of them.
  Status word_border(std::string_view form) {
    at_ += 2;
    for (const char c : form) {
      if (c == 'W') {
        out_.append("[").append(lone_word()).append("]");
      } else {
        out_ += c;
      }
    }
    return {};
  }

  static std::string lone_word() { return std::string(kWordItems).append(kLoneWordItems); }

  Status items(std::string_view list, bool in_class) {
    at_ += 2;
    if (!in_class) out_ += '[';
    out_ += list;
    if (!in_class) out_ += ']';
    return {};
  }

  Status negated_items(std::string_view list, bool in_class, std::string_view name) {
    if (in_class) {
      // [\s\S] and its like, meaning any character, is the one common use.
      if (out_ == list && peek(2) == ']') {
        at_ += 2;
        out_ += "\\x{0}-\\x{10FFFF}";
        return {};
      }
      return refuse(name);
    }
    at_ += 2;
    out_.append("[^").append(list).append("]");
    return {};
  }

  // \p{Name}, \p{^Name}, \P{Name}; a one-letter \pL passes through.
  Status property() {
    if (peek(2) != '{') {
      copy(3);
      return {};
    }
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) {
      return fail(Code::kCorrupt, "{}: the pattern \"{}\" has an unclosed property", where_, in_);
    }
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    out_.append(in_.substr(at_, 3));
    if (!name.empty() && name[0] == '^') {
      out_ += '^';
      name.remove_prefix(1);
    }
    std::string_view shown = name;
    for (const auto& [from, to] : kLongNames) {
      if (name == from) shown = to;
    }
    const bool is_script = shown.size() > 2 && name == shown && shown != "Any";
    if (is_script) out_ += "sc:";
    out_.append(shown).append("}");
    at_ = close + 1;
    return {};
  }

  Status code_unit() {
    const std::string_view digits = in_.substr(std::min(at_ + 2, in_.size()), 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
      return fail(Code::kCorrupt, "{}: the pattern \"{}\" needs four hex digits after \\u", where_,
                  in_);
    }
    out_.append("\\x{").append(digits).append("}");
    at_ += 6;
    return {};
  }

  // What a class takes: the items of a PCRE2 class, and patterns that take one character each.
  struct Union {
    std::string items;
    std::vector<std::string> others;

    // Both as one pattern. REQUIRES: there is something.
    std::string pattern() const {
      const std::string_view escape = items.starts_with('^') ? "\\" : "";
      std::string joined = items.empty() ? "" : fmt::format("[{}{}]", escape, items);
      for (const std::string& other : others) joined += (joined.empty() ? "" : "|") + other;
      const size_t count = others.size() + (items.empty() ? 0 : 1);
      return count > 1 ? "(?:" + joined + ")" : joined;
    }
  };

  Status character_class() {
    const std::string before = std::exchange(out_, {});
    JIGE_TRY(const Union read, class_union());
    out_ = before + read.pattern();
    return {};
  }

  // A class, with those inside it and with intersections; what a plain one takes comes as items.
  Result<Union> class_union() {
    if (++class_depth_ > kClassDepthMax) return refuse("too many classes inside one another");
    at_ += 1;
    const bool negated = peek() == '^';
    if (negated) at_ += 1;
    if (peek() == ']') return refuse("a class that begins with ]");
    JIGE_TRY(Union all, class_operand());
    while (peek() == '&') {
      at_ += 2;
      JIGE_TRY(const Union more, class_operand());
      all = {.items = "", .others = {"(?:(?=" + more.pattern() + ")" + all.pattern() + ")"}};
    }
    if (peek() != ']') {
      return fail(Code::kCorrupt, "{}: the pattern \"{}\" has an unclosed class", where_, in_);
    }
    at_ += 1;
    --class_depth_;
    if (!negated) return all;
    if (all.others.empty()) return Union{.items = "", .others = {"[^" + all.items + "]"}};
    return Union{.items = "", .others = {"(?:(?!" + all.pattern() + ")(?s:.))"}};
  }

  // The items up to the next && or the end of the class.
  Result<Union> class_operand() {
    const std::string outside = std::exchange(out_, {});
    Union found;
    while (at_ < in_.size() && peek() != ']' && !(peek() == '&' && peek(1) == '&')) {
      if (peek() == '[' && peek(1) == ':') {
        JIGE_DO(named_class());
      } else if (peek() == '[') {
        JIGE_TRY(const Union inner, class_union());
        if (inner.others.empty() && !out_.ends_with('-') && peek() != '-') {
          out_ += inner.items;
        } else {
          found.others.push_back(inner.pattern());
        }
      } else if (peek() == '\\') {
        JIGE_DO(escape(/*in_class=*/true));
      } else {
        copy(1);
      }
    }
    found.items = std::exchange(out_, outside);
    if (found.items.empty() && found.others.empty()) return refuse("a class with an empty part");
    return found;
  }

  // [:name:] inside a class, where the two libraries agree or the items are known.
  Status named_class() {
    const size_t close = in_.find(":]", at_);
    const std::string_view name = in_.substr(at_, close == in_.npos ? 2 : close + 2 - at_);
    if (name == "[:space:]") {
      out_ += kSpaceItems;
    } else if (name == "[:punct:]") {
      out_ += kPunctuationItems;
    } else if (name == "[:word:]") {
      out_ += kWordItems;
    } else if (name == "[:digit:]" || name == "[:xdigit:]") {
      out_ += name == "[:digit:]" ? "\\p{Nd}" : kHexItems;
    } else {
      return refuse("the class " + std::string(name));
    }
    at_ += name.size();
    return {};
  }

  // "(" and, after "(?", the option letters up to ":" or ")".
  Status group() {
    if (peek(1) == '*') return refuse("a control verb (*...)");
    if (peek(1) != '?') {
      copy(1);
      return {};
    }
    if (peek(2) == 'C') return refuse("a callout (?C)");
    copy(2);
    const std::string_view options = in_.substr(at_, in_.find_first_not_of("imxa-", at_) - at_);
    const char after = peek(options.size());
    if (after != ':' && after != ')') return {};
    // Ruby closes the group of such an option at the next ")", PCRE2 at the next "|" too.
    if (after == ')' && at_ != 2) return refuse("an option inside the pattern");
    for (const char option : options) {
      if (option == 'a') return refuse("the option (?a)");
      out_ += option == 'm' ? 's' : option;
    }
    at_ += options.size();
    return {};
  }

  // {n,m}, {n}, {n,} and {,n}; anything else after "{" is the character itself.
  Status interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    if (end >= in_.size() || in_[end] != '}' || end == at_ + 1) {
      copy(1);
      return {};
    }
    if (end + 1 < in_.size() && in_[end + 1] == '+') return refuse("a repeated {n,m}+");
    if (peek(1) == ',') {
      out_ += "{0";
      at_ += 1;
    }
    copy(end + 1 - at_);
    return {};
  }

  std::string_view in_;
  std::string_view where_;
  size_t at_ = 0;
  int class_depth_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view pattern, std::string_view where) {
  return Rewriter(pattern, where).run();
}

}  // namespace jige::text
