#include "grammar/pieces.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "grammar/schema.h"

namespace jige::grammar {
namespace {

Result<NodeId> build_json(GrammarBuilder& builder, const Json& piece, NodeId next) {
  const RuleId rule = builder.add_rule();
  auto entry = build_schema(builder, piece["json"]);
  if (!entry) {
    return with_context(std::move(entry.error()), "{}",
                        piece["place"].get_ref<const std::string&>());
  }
  builder.define(rule, *entry);
  return builder.call(rule, next);
}

Result<NodeId> build_repeated(GrammarBuilder& builder, const Json& piece, NodeId next) {
  const NodeId more = builder.reserve_split();
  JIGE_TRY(const NodeId once, build_pieces(builder, piece["repeated"], more));
  JIGE_TRY(const NodeId again, build_pieces(builder, piece["between"], once));
  builder.set_split(more, {again, next});
  return once;
}

}  // namespace

std::string special_text(std::string_view name) {
  std::string text(1, kSpecialMark);
  return text += name;
}

Json text_piece(std::string_view text) { return {{"text", text}}; }

Json special_piece(std::string_view name) { return {{"special", name}}; }

Json json_piece(Json schema, std::string_view place) {
  return {{"json", std::move(schema)}, {"place", place}};
}

Json row_piece(std::vector<Json> pieces) { return {{"row", Json(std::move(pieces))}}; }

Json either_piece(std::vector<Json> pieces) { return {{"either", Json(std::move(pieces))}}; }

Json repeated_piece(Json piece, Json between) {
  return {{"repeated", std::move(piece)}, {"between", std::move(between)}};
}

Result<NodeId> build_pieces(GrammarBuilder& builder, const Json& piece, NodeId next) {
  if (const Json* text = find_field(piece, "text")) {
    return builder.text(text->get_ref<const std::string&>(), next);
  }
  if (const Json* name = find_field(piece, "special")) {
    return builder.text(special_text(name->get_ref<const std::string&>()), next);
  }
  if (find_field(piece, "json")) return build_json(builder, piece, next);
  if (find_field(piece, "repeated")) return build_repeated(builder, piece, next);
  if (const Json* row = find_field(piece, "row")) {
    for (auto it = row->rbegin(); it != row->rend(); ++it) {
      JIGE_TRY(next, build_pieces(builder, *it, next));
    }
    return next;
  }
  const Json* either = find_field(piece, "either");
  if (!either) return fail(Code::kInternal, "a constraint of no kind: {}", dump_json(piece));
  std::vector<NodeId> branches;
  for (const Json& one : *either) {
    JIGE_TRY(const NodeId branch, build_pieces(builder, one, next));
    branches.push_back(branch);
  }
  return builder.split(branches);
}

}  // namespace jige::grammar
