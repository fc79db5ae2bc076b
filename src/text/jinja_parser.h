// Parses template source into the tree of jinja_ast.h, by recursive descent with Jinja's
// precedence:
//
//   ternary > or > and > not > comparison and in > + - > ~ > * / // % > ** > unary > postfix,
//   filter, is
//
// Threads: pure function.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja_ast.h"

namespace jige::text::jinja {

// Fails with kCorrupt and the line on syntax errors, kUnsupported on statements outside the subset
// and on trees that nest too deep.
Result<Template> parse_template(std::string_view source, std::string_view where);

}  // namespace jige::text::jinja
