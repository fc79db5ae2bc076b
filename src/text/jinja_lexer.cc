#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja_text.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

constexpr std::array<std::string_view, 27> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!"};

bool is_name_start(char32_t c) { return c == '_' || is_letter(c); }
bool is_name_part(char32_t c) {
  return c == '_' || is_letter(c) || is_mark(c) || (is_numeric(c) && c != 0xB2 && c != 0xB3);
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view where) : source_(std::move(source)), where_(where) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) JIGE_DO(data());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  tl::unexpected<Error> corrupt(std::string_view what) const {
    return fail(Code::kCorrupt, "{}: line {}: {}", where_, line_, what);
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Moves on, counting lines.
  void advance(size_t count) {
    line_ += static_cast<uint32_t>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                   source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  void skip_space() { advance(rest().size() - strip_left(rest()).size()); }

  // Text up to the next tag, then the tag.
  Status data() {
    size_t open = at_;
    while (open < source_.size()) {
      open = source_.find('{', open);
      if (open == std::string::npos) break;
      const char next = open + 1 < source_.size() ? source_[open + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    if (open >= source_.size()) {
      const std::string_view text = rest();
      add(TokenKind::kData, std::string(text));
      advance(text.size());
      return {};
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const size_t size = open - at_;
    add_data(rest().substr(0, size), sign, kind != '{');
    advance(size + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') return comment();
    if (kind == '{') return variable();
    return block();
  }

  // Adds the text before a tag, stripped as the tag's sign asks.
  void add_data(std::string_view text, char sign, bool is_block) {
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && is_block) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == text.npos ? 0 : newline + 1;
      const bool begins_line = newline != text.npos || at_line_start_;
      if (begins_line && strip_left(text.substr(line_start)).empty()) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  // What follows a tag's end at `end` bytes from here: "-" eats all space, otherwise, unless "+",
  // one newline goes after blocks and comments.
  void close(size_t end, char sign, bool trims) {
    advance(end);
    if (sign == '-') {
      skip_space();
    } else if (trims && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      advance(1);
    }
    at_line_start_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  Status comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return corrupt("a comment does not end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    close(end + 2 - at_, sign, true);
    return {};
  }

  Status variable() {
    add(TokenKind::kVariableBegin, "");
    JIGE_TRY(const char sign, inside("}}", "-"));
    add(TokenKind::kVariableEnd, "");
    close(2, sign, false);
    return {};
  }

  Status block() {
    const std::string_view word = strip_left(rest());
    if (word.starts_with("raw")) {
      const std::string_view end = strip_left(word.substr(3));
      if (end.starts_with("%}") || end.starts_with("-%}")) {
        return raw(rest().size() - end.size());
      }
    }
    add(TokenKind::kBlockBegin, "");
    JIGE_TRY(const char sign, inside("%}", "-+"));
    add(TokenKind::kBlockEnd, "");
    close(2, sign, true);
    return {};
  }

  // {% raw %} … {% endraw %}: `head` bytes lead to the end of the opening tag.
  Status raw(size_t head) {
    advance(head);
    if (rest().starts_with("-%}")) {
      advance(3);
      skip_space();
    } else {
      advance(2);
    }
    at_line_start_ = source_[at_ - 1] == '\n';
    for (size_t open = source_.find("{%", at_); open != std::string::npos;
         open = source_.find("{%", open + 2)) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      const size_t word_at = open + (sign == '-' || sign == '+' ? 3 : 2);
      const std::string_view word = strip_left(std::string_view(source_).substr(word_at));
      if (!word.starts_with("endraw")) continue;
      const std::string_view end = strip_left(word.substr(6));
      const char end_sign = end.empty() ? '\0' : end[0];
      const size_t skip = end_sign == '-' || end_sign == '+' ? 1 : 0;
      if (!end.substr(skip).starts_with("%}")) continue;
      add_data(rest().substr(0, open - at_), sign, true);
      const size_t end_at = source_.size() - end.size() + skip + 2;
      close(end_at - at_, skip ? end_sign : '\0', true);
      return {};
    }
    return corrupt("{% raw %} does not end");
  }

  // The tokens of a tag up to its end, which it leaves to be read. Gives the sign before the end.
  Result<char> inside(std::string_view end, std::string_view signs) {
    std::string brackets;
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) return corrupt("a tag does not end");
      if (brackets.empty()) {
        const char sign = signs.find(source_[at_]) != signs.npos ? source_[at_] : '\0';
        if (rest().substr(sign ? 1 : 0).starts_with(end)) {
          if (sign) advance(1);
          return sign;
        }
      }
      JIGE_DO(token(brackets));
    }
  }

  Status token(std::string& brackets) {
    const char first = source_[at_];
    if (is_digit(first)) return number();
    if (first == '"' || first == '\'') return string();
    const Decoded next = decode_utf8(rest());
    if (is_name_start(next.code_point)) return name();
    for (const std::string_view op : kOperators) {
      if (!rest().starts_with(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        brackets.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty() || brackets.back() != op[0]) {
          return corrupt("unexpected \"" + std::string(op) + "\"");
        }
        brackets.pop_back();
      }
      add(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return {};
    }
    return corrupt("unexpected character \"" + std::string(rest().substr(0, next.size)) + "\"");
  }

  Status name() {
    size_t size = 0;
    while (size < rest().size()) {
      const Decoded next = decode_utf8(rest().substr(size));
      if (!is_name_part(next.code_point)) break;
      size += next.size;
    }
    add(TokenKind::kName, std::string(rest().substr(0, size)));
    advance(size);
    return {};
  }

  // Digits with single underscores between them, from `from` on; the end of them.
  size_t digits_end(size_t from, std::string_view allowed = "0123456789") const {
    size_t end = from;
    while (end < source_.size()) {
      const bool underscore = source_[end] == '_' && end > from && end + 1 < source_.size();
      if (allowed.find(source_[underscore ? end + 1 : end]) == allowed.npos) break;
      end += underscore ? 2 : 1;
    }
    return end;
  }

  Status number() {
    const char second = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    size_t end = 0;
    bool is_float = false;
    if (source_[at_] == '0' && std::string_view("xXoObB").find(second) != std::string_view::npos) {
      end = digits_end(at_ + 2, "0123456789abcdefABCDEF");
    } else {
      end = digits_end(at_);
      // Behind a dot it is an index: a.0.1 is a[0][1].
      const bool is_index = at_ > 0 && source_[at_ - 1] == '.';
      if (!is_index && end + 1 < source_.size() && source_[end] == '.' &&
          is_digit(source_[end + 1])) {
        is_float = true;
        end = digits_end(end + 1);
      }
      if (!is_index && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          is_float = true;
          end = digits_end(exponent);
        }
      }
    }
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(end - at_);
    return {};
  }

  Status string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return corrupt("a string does not end");
    JIGE_TRY(std::string text, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    add(TokenKind::kString, std::move(text));
    advance(end + 1 - at_);
    return {};
  }

  // Python's escapes in a string.
  Result<std::string> unescape(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out.push_back(raw[i]);
        continue;
      }
      const char kind = raw[++i];
      constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t simple = kFrom.find(kind); simple != kFrom.npos) {
        out.push_back(kTo[simple]);
      } else if (kind >= '0' && kind <= '7') {
        char32_t value = 0;
        size_t digits = 0;
        while (digits < 3 && i + digits < raw.size() && raw[i + digits] >= '0' &&
               raw[i + digits] <= '7') {
          value = value * 8 + static_cast<char32_t>(raw[i + digits++] - '0');
        }
        i += digits - 1;
        append_utf8(out, value);
      } else if (kind == 'x' || kind == 'u' || kind == 'U') {
        const size_t count = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
        const std::string_view digits = raw.substr(i + 1, count);
        if (digits.size() < count ||
            digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
          return corrupt("a \\" + std::string(1, kind) + " escape needs " + std::to_string(count) +
                         " hex digits");
        }
        append_utf8(out, static_cast<char32_t>(std::stoul(std::string(digits), nullptr, 16)));
        i += count;
      } else if (kind != '\n') {
        out.push_back('\\');
        out.push_back(kind);
      }
    }
    return out;
  }

  std::string source_;
  std::string_view where_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, std::string_view where) {
  if (source.size() > kSourceBytesMax) {
    return fail(Code::kUnsupported, "{}: the template has {} bytes, more than {}", where,
                source.size(), kSourceBytesMax);
  }
  if (!is_valid_utf8(source)) {
    return fail(Code::kCorrupt, "{}: the template is not valid UTF-8", where);
  }
  return Lexer(with_plain_newlines(source), where).run();
}

}  // namespace jige::text::jinja
