#include "grammar/constraint_compiler.h"

#include <nlohmann/json.hpp>

#include "grammar/ebnf.h"
#include "grammar/json_rules.h"
#include "grammar/pieces.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "text/token_text.h"
#include "text/unicode.h"

namespace jige::grammar {
namespace {

Result<NodeId> build_choices(GrammarBuilder& builder, const Json& value) {
  std::vector<std::string> choices;
  size_t bytes = 0;
  if (value.is_array() && value.size() <= kChoicesMax) {
    for (const Json& choice : value) {
      if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) break;
      if (!text::is_valid_utf8(choice.get_ref<const std::string&>())) break;
      choices.push_back(choice.get<std::string>());
      bytes += choices.back().size();
    }
  }
  if (choices.empty() || choices.size() != value.size() || bytes > kChoicesBytesMax) {
    return fail(Code::kInvalidArgument,
                "choices must be a list of 1 to {} texts in UTF-8, none of them empty, of {} bytes "
                "together",
                kChoicesMax, kChoicesBytesMax);
  }
  return one_of(builder, std::move(choices), builder.end());
}

Result<NodeId> build_root(GrammarBuilder& builder, const ConstraintSource& source) {
  switch (source.kind) {
    case ConstraintSource::Kind::kRegex: {
      if (!source.value.is_string()) {
        return fail(Code::kInvalidArgument, "a regular expression must be a text");
      }
      JIGE_TRY(const RegexNode regex, parse_regex(source.value.get_ref<const std::string&>()));
      return build_regex(builder, regex, spell_plainly, builder.end());
    }
    case ConstraintSource::Kind::kChoices:
      return build_choices(builder, source.value);
    case ConstraintSource::Kind::kJsonObject:
      return JsonRules(builder).object(builder.end());
    case ConstraintSource::Kind::kJsonSchema:
      return build_schema(builder, source.value);
    case ConstraintSource::Kind::kEbnf: {
      if (!source.value.is_string()) {
        return fail(Code::kInvalidArgument, "a grammar must be a text");
      }
      JIGE_TRY(const Ebnf ebnf, parse_ebnf(source.value.get_ref<const std::string&>()));
      return build_ebnf(builder, ebnf);
    }
    case ConstraintSource::Kind::kPieces:
      return build_pieces(builder, source.value, builder.end());
  }
  return fail(Code::kInternal, "a constraint of no kind");
}

}  // namespace

Result<Grammar> compile_grammar(const ConstraintSource& source) {
  GrammarBuilder builder;
  const RuleId root = builder.add_rule();
  JIGE_TRY(const NodeId entry, build_root(builder, source));
  builder.define(root, entry);
  return builder.finish(root);
}

std::vector<std::string> token_texts(const text::Tokenizer& tokenizer) {
  std::vector<std::string> texts(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto name = tokenizer.id_to_token(id);
    if (!name) continue;
    std::string& text = texts[static_cast<size_t>(id)];
    if (tokenizer.is_special(id)) {
      text = special_text(*name);
    } else {
      text = text::token_bytes(tokenizer, id, text::token_text(tokenizer, id));
      if (text.find(kSpecialMark) != std::string::npos) text.clear();
    }
  }
  return texts;
}

ConstraintCompiler::ConstraintCompiler(const text::Tokenizer& tokenizer,
                                       size_t constraint_bytes_max)
    : trie_(std::make_shared<const TokenTrie>(token_texts(tokenizer))),
      memory_(std::make_shared<ConstraintMemory>(constraint_bytes_max)) {}

Result<std::shared_ptr<Constraint>> ConstraintCompiler::compile(const ConstraintSource& source) {
  std::string key = fmt::format("{} {}", static_cast<int>(source.kind), dump_json(source.value));
  if (auto known = memory_->find(key); known && !known->is_crowded()) return known;
  JIGE_TRY(Grammar grammar, compile_grammar(source));
  JIGE_TRY(
      std::shared_ptr<Constraint> constraint,
      Constraint::create(std::make_shared<const Grammar>(std::move(grammar)), trie_, {}, memory_));
  Work work;
  JIGE_DO(constraint->allowed(constraint->start().state, work));
  memory_->keep(std::move(key), constraint);
  return constraint;
}

}  // namespace jige::grammar
