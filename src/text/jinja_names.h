// What the names of a template mean: found before it runs, as Jinja does.
//
// A name that a block assigns to is a variable of that block from its beginning: where it is read
// earlier, in a loop or a macro inside, it is undefined and not what was given to the template. A
// name that the block reads first, or that only a branch of an {% if %} assigns to, begins as what
// was given.
//
// Threads: pure functions.
#pragma once

#include "text/jinja_ast.h"

namespace jige::text::jinja {

// Sets Expr::is_local of every name.
void resolve_names(Template& source);

}  // namespace jige::text::jinja
