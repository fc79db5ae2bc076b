// Constraints put together of pieces: texts, special tokens, JSON of schemas, one behind the other,
// one of several, again and again. Forms of this program are made of them, such as calls of tools;
// requests hold none.
//
//   row_piece({text_piece("[["), json_piece(schema, "f's argument"), text_piece("]]")})
//
// A piece is a value of JSON, so that it can be part of a ConstraintSource. In a grammar a special
// token is a byte that no text has, kSpecialMark, and its name: only the token itself spells it.
// Threads: pure functions, those of the builder too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/grammar.h"

namespace jige::grammar {

inline constexpr char kSpecialMark = '\xFF';  // in no UTF-8

std::string special_text(std::string_view name);

Json text_piece(std::string_view text);
// The special token of this name.
Json special_piece(std::string_view name);
// JSON that fits the schema; errors begin with `place`.
Json json_piece(Json schema, std::string_view place);
Json row_piece(std::vector<Json> pieces);
// REQUIRES: at least one.
Json either_piece(std::vector<Json> pieces);
// One or more, `between` between two.
Json repeated_piece(Json piece, Json between);

// What the piece stands for, then `next`. Fails as build_schema does.
Result<NodeId> build_pieces(GrammarBuilder& builder, const Json& piece, NodeId next);

}  // namespace jige::grammar
