// The part of the parser that reads expressions; jinja_parser.cc builds statements on it.
//
// Threads: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_token_reader.h"

namespace jige::text::jinja {

class ExpressionParser : protected TokenReader {
 public:
  ExpressionParser(std::vector<Token> tokens, std::string_view where)
      : TokenReader(std::move(tokens), where) {}

  // One expression; with `tuples`, "a, b" without brackets is a tuple.
  Result<ExprPtr> expression(bool tuples = true);
  // An expression without a ternary at its top, as the sequence of a for loop.
  Result<ExprPtr> without_ternary();
  // A chain "|filter|filter…" applied to nothing; reads a first filter without "|" if `first_bare`.
  Result<ExprPtr> filter_chain(bool first_bare);

 protected:
  // Fills in the height and refuses trees that nest too deep.
  Result<ExprPtr> finish(ExprPtr node) const;

  // Set when varargs or kwargs is read.
  bool saw_extras_ = false;

 private:
  struct Depth;
  using Rule = Result<ExprPtr> (ExpressionParser::*)();

  ExprPtr make(ExprKind kind) const;
  Result<ExprPtr> ternary();
  Result<ExprPtr> either();
  Result<ExprPtr> both();
  Result<ExprPtr> negation();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concatenation();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary();
  Result<ExprPtr> signed_unary(bool with_filters);
  Result<ExprPtr> primary();
  ExprPtr constant_or_name(std::string_view text);
  Result<ExprPtr> number(const Token& token);
  Result<ExprPtr> bracketed();
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr node);
  Result<ExprPtr> subscript(ExprPtr node);
  Result<ExprPtr> filters_and_tests(ExprPtr node);
  Result<ExprPtr> one_filter(ExprPtr node);
  Result<ExprPtr> test(ExprPtr node);
  Result<std::vector<Argument>> arguments();
  // Left-associative chain of binary operators.
  Result<ExprPtr> chain(Rule operand, std::initializer_list<std::string_view> operators);
  std::string comparison_operator();

  uint32_t depth_ = 0;
};

}  // namespace jige::text::jinja
