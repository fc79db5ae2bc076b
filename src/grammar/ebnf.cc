#include "grammar/ebnf.h"

namespace jige::grammar {
namespace {

class EbnfBuilder {
 public:
  EbnfBuilder(GrammarBuilder& builder, const Ebnf& ebnf) : builder_(builder) {
    for (size_t i = 0; i < ebnf.rules.size(); ++i) rules_.push_back(builder.add_rule());
    for (size_t i = 0; i < ebnf.rules.size() && !builder.overflowed(); ++i) {
      builder.define(rules_[i], build(ebnf.rules[i].body, builder.end()));
    }
  }

  NodeId root(const Ebnf& ebnf) { return builder_.call(rules_[ebnf.root], builder_.end()); }

 private:
  NodeId build(const EbnfNode& node, NodeId next) {
    if (builder_.overflowed()) return builder_.end();
    switch (node.kind) {
      case EbnfNode::Kind::kText:
        return builder_.text(node.text, next);
      case EbnfNode::Kind::kCharacter:
        return node.characters.node(builder_, next);
      case EbnfNode::Kind::kRule:
        return builder_.call(rules_[node.rule], next);
      case EbnfNode::Kind::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) next = build(node.parts[i], next);
        return next;
      case EbnfNode::Kind::kAlternatives: {
        std::vector<NodeId> branches;
        for (const EbnfNode& part : node.parts) branches.push_back(build(part, next));
        return builder_.split(branches);
      }
      case EbnfNode::Kind::kRepeat:
        return build_repeat(node, next);
    }
    return next;
  }

  // A body that is repeated is a rule, so that its copies are calls, unless it is one byte.
  NodeId build_repeat(const EbnfNode& node, NodeId next) {
    const EbnfNode& body = node.parts[0];
    if (body.kind == EbnfNode::Kind::kCharacter && body.characters.ranges().back().last < 0x80) {
      return repeat(builder_, node.counts, next, [&](NodeId after) { return build(body, after); });
    }
    RuleId rule = 0;
    if (body.kind == EbnfNode::Kind::kRule) {
      rule = rules_[body.rule];
    } else {
      rule = builder_.add_rule();
      if (builder_.overflowed()) return builder_.end();
      builder_.define(rule, build(body, builder_.end()));
    }
    return repeat(builder_, node.counts, next,
                  [&](NodeId after) { return builder_.call(rule, after); });
  }

  GrammarBuilder& builder_;
  std::vector<RuleId> rules_;
};

}  // namespace

NodeId build_ebnf(GrammarBuilder& builder, const Ebnf& ebnf) {
  return EbnfBuilder(builder, ebnf).root(ebnf);
}

}  // namespace jige::grammar
