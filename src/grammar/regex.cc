#include "grammar/regex.h"

namespace jige::grammar {
namespace {

bool is_plain_character(const RegexNode& node) {
  return node.kind == RegexNode::Kind::kCharacter && node.characters.ranges().back().last < 0x80;
}

// A body that is repeated is a rule, so that its copies are calls.
NodeId build_repeat(GrammarBuilder& builder, const RegexNode& regex, Spelling spell, NodeId next) {
  const RegexNode& body = regex.parts[0];
  if (is_plain_character(body)) {
    return repeat(builder, regex.counts, next,
                  [&](NodeId after) { return build_regex(builder, body, spell, after); });
  }
  const RuleId rule = builder.add_rule();
  builder.define(rule, build_regex(builder, body, spell, builder.end()));
  return repeat(builder, regex.counts, next,
                [&](NodeId after) { return builder.call(rule, after); });
}

}  // namespace

NodeId spell_plainly(GrammarBuilder& builder, const CodePoints& characters, NodeId next) {
  return characters.node(builder, next);
}

NodeId build_regex(GrammarBuilder& builder, const RegexNode& regex, Spelling spell, NodeId next) {
  if (builder.overflowed()) return builder.end();
  switch (regex.kind) {
    case RegexNode::Kind::kEmpty:
      return next;
    case RegexNode::Kind::kCharacter:
      return spell(builder, regex.characters, next);
    case RegexNode::Kind::kSequence:
      for (size_t i = regex.parts.size(); i-- > 0;) {
        next = build_regex(builder, regex.parts[i], spell, next);
      }
      return next;
    case RegexNode::Kind::kAlternatives: {
      std::vector<NodeId> branches;
      for (const RegexNode& part : regex.parts) {
        branches.push_back(build_regex(builder, part, spell, next));
      }
      return builder.split(branches);
    }
    case RegexNode::Kind::kRepeat:
      return build_repeat(builder, regex, spell, next);
  }
  return next;
}

}  // namespace jige::grammar
