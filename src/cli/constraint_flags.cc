#include "cli/constraint_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "cli/flags.h"
#include "cli/input.h"

namespace jige::cli {
namespace {

using Kind = grammar::ConstraintSource::Kind;

constexpr size_t kSchemaFileMax = size_t{1} << 22;  // with its white space

struct Wish {
  std::string_view flag;
  Kind kind;
  bool given;
};

// No file that anyone has is named like that.
bool is_json_text(std::string_view value) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && value[first] == '{';
}

}  // namespace

void ConstraintFlags::declare(Flags& flags) {
  flags.section("What the answer must be (one of these at most)");
  flags.text("--json-schema FILE|TEXT", json_schema,
             "JSON that fits this schema, of a file or as the text {…} itself; docs/serving.md "
             "tells what schemas may say");
  flags.toggle("--json-object", json_object, "a JSON object");
  flags.text("--regex TEXT", regex, "a text that the whole regular expression matches");
  flags.text("--grammar FILE|TEXT", grammar,
             "a text that fits the rule root of this grammar (EBNF as in llama.cpp), of a file or "
             "as the text root ::= … itself");
  flags.texts("--choice TEXT", choices, "one of the texts; may be given several times");
}

Result<Json> ConstraintFlags::read_schema() const {
  if (is_json_text(*json_schema)) return parse_json(*json_schema, "--json-schema");
  JIGE_DO(
      check_file("--json-schema", *json_schema, "a JSON schema, or its text, which begins with {"));
  JIGE_TRY(const std::string text, read_file(*json_schema, kSchemaFileMax));
  return parse_json(text, *json_schema);
}

Result<std::string> ConstraintFlags::read_rules() const {
  if (grammar->find("::=") != std::string::npos) return *grammar;
  JIGE_DO(check_file("--grammar", *grammar, "a grammar, or its text, which has a ::="));
  return read_file(*grammar, kSchemaFileMax);
}

Result<std::optional<grammar::ConstraintSource>> ConstraintFlags::read() const {
  const Wish wishes[] = {{"--json-schema", Kind::kJsonSchema, json_schema.has_value()},
                         {"--json-object", Kind::kJsonObject, json_object},
                         {"--regex", Kind::kRegex, regex.has_value()},
                         {"--grammar", Kind::kEbnf, grammar.has_value()},
                         {"--choice", Kind::kChoices, !choices.empty()}};
  const Wish* wanted = nullptr;
  for (const Wish& wish : wishes) {
    if (!wish.given) continue;
    if (wanted) {
      return fail(Code::kInvalidArgument,
                  "{} and {} cannot both say what the answer is to be; leave one out", wanted->flag,
                  wish.flag);
    }
    wanted = &wish;
  }
  if (!wanted) return std::nullopt;
  grammar::ConstraintSource source{.kind = wanted->kind, .value = Json()};
  if (json_schema) {
    JIGE_TRY(source.value, read_schema());
  }
  if (regex) source.value = *regex;
  if (grammar) {
    JIGE_TRY(source.value, read_rules());
  }
  if (!choices.empty()) source.value = choices;
  auto compiled = grammar::compile_grammar(source);
  if (compiled) return source;
  compiled.error().message += "; docs/serving.md tells what is supported";
  return with_context(std::move(compiled.error()), "{}", wanted->flag);
}

}  // namespace jige::cli
