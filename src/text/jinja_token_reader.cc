#include "text/jinja_token_reader.h"

#include <algorithm>

namespace jige::text::jinja {

const Token& TokenReader::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token TokenReader::take() {
  const Token token = peek();
  line_ = token.line;
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::at_end_of_tag() const {
  const TokenKind kind = peek().kind;
  return kind == TokenKind::kBlockEnd || kind == TokenKind::kVariableEnd || kind == TokenKind::kEnd;
}

bool TokenReader::is_name(std::string_view text, size_t ahead) const {
  return peek(ahead).kind == TokenKind::kName && peek(ahead).text == text;
}

bool TokenReader::is_operator(std::string_view text, size_t ahead) const {
  return peek(ahead).kind == TokenKind::kOperator && peek(ahead).text == text;
}

bool TokenReader::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  take();
  return true;
}

bool TokenReader::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  take();
  return true;
}

Status TokenReader::expect_operator(std::string_view text) {
  if (skip_operator(text)) return {};
  return corrupt(fmt::format("expected \"{}\"", text));
}

Result<uint32_t> TokenReader::take_name() {
  constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None",
                                            "and",  "or",    "not",  "if",   "else",  "in",  "is"};
  const Token& token = peek();
  if (token.kind != TokenKind::kName) return unexpected();
  if (std::find(std::begin(kReserved), std::end(kReserved), token.text) != std::end(kReserved)) {
    return corrupt(fmt::format("\"{}\" cannot be assigned to", token.text));
  }
  return intern(take().text);
}

uint32_t TokenReader::intern(const std::string& name) {
  const auto [it, is_new] = name_ids_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return it->second;
}

tl::unexpected<Error> TokenReader::corrupt(std::string_view what) const {
  return fail(Code::kCorrupt, "{}: line {}: {}", where_, peek().line, what);
}

tl::unexpected<Error> TokenReader::unexpected() const {
  const Token& token = peek();
  switch (token.kind) {
    case TokenKind::kEnd: return corrupt("unexpected end of the template");
    case TokenKind::kBlockEnd:
    case TokenKind::kVariableEnd: return corrupt("unexpected end of the tag");
    case TokenKind::kData: return corrupt("unexpected text");
    default: return corrupt(fmt::format("unexpected \"{}\"", token.text));
  }
}

}  // namespace jige::text::jinja
