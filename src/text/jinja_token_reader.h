// A cursor over the tokens of a template, with the questions and errors that parsing needs.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/jinja_lexer.h"

namespace jige::text::jinja {

class TokenReader {
 protected:
  // REQUIRES: the tokens end in one of kind kEnd; `where` outlives the reader.
  TokenReader(std::vector<Token> tokens, std::string_view where)
      : where_(where), tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const;
  Token take();
  bool at_end_of_tag() const;
  bool is_name(std::string_view text, size_t ahead = 0) const;
  bool is_operator(std::string_view text, size_t ahead = 0) const;
  bool skip_name(std::string_view text);
  bool skip_operator(std::string_view text);
  Status expect_operator(std::string_view text);
  // A name that may be assigned to.
  Result<uint32_t> take_name();
  // The number of a name in names_.
  uint32_t intern(const std::string& name);
  // kCorrupt with the place of the next token.
  tl::unexpected<Error> corrupt(std::string_view what) const;
  tl::unexpected<Error> unexpected() const;

  std::vector<std::string> names_;
  std::string_view where_;
  uint32_t line_ = 1;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::unordered_map<std::string, uint32_t> name_ids_;
};

}  // namespace jige::text::jinja
