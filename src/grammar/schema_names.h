// Names of members that a schema does not list.
//
// Threads: pure functions of the builder.
#pragma once

#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace jige::grammar {

// A name in quotation marks that is none of `names`, written without escapes; then `next`.
NodeId other_name(GrammarBuilder& builder, const std::vector<std::string>& names, NodeId next);

}  // namespace jige::grammar
