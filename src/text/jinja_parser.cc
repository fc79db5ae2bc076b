#include "text/jinja_parser.h"

#include <algorithm>

#include "text/jinja_expression_parser.h"
#include "text/jinja_names.h"

namespace jige::text::jinja {
namespace {

constexpr uint32_t kBlockDepthMax = 60;

// The tags that end or divide an open block.
using Ends = std::initializer_list<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Template> run() {
    Template result;
    result.where = where_;
    JIGE_TRY(result.body, body({}));
    result.names = std::move(names_);
    result.has_generation = has_generation_;
    resolve_names(result);
    return result;
  }

 private:
  static std::unique_ptr<Stmt> make(StmtKind kind, uint32_t line) {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  // Statements up to one of the tags in `ends`, which is left with its "{%" taken.
  Result<Body> body(Ends ends) {
    if (++block_depth_ > kBlockDepthMax) {
      return fail(Code::kUnsupported, "{}: line {}: blocks nest deeper than {} levels", where_,
                  peek().line, kBlockDepthMax);
    }
    Body list;
    for (;;) {
      const Token token = take();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() == 0) break;
        return corrupt(fmt::format("{{% {} %}} is missing", *(ends.end() - 1)));
      }
      if (token.kind == TokenKind::kData) {
        list.push_back(make(StmtKind::kText, token.line));
        list.back()->text = token.text;
      } else if (token.kind == TokenKind::kVariableBegin) {
        auto node = make(StmtKind::kOutput, token.line);
        JIGE_TRY(node->value, expression());
        if (take().kind != TokenKind::kVariableEnd) return corrupt("expected \"}}\"");
        list.push_back(std::move(node));
      } else if (token.kind == TokenKind::kBlockBegin) {
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return is_name(end); })) break;
        JIGE_TRY(auto node, statement());
        list.push_back(std::move(node));
      } else {
        return unexpected();
      }
    }
    --block_depth_;
    return list;
  }

  Status end_tag() {
    if (take().kind == TokenKind::kBlockEnd) return {};
    return corrupt("expected \"%}\"");
  }

  // Takes the closing tag's name and its end.
  Status close() {
    take();
    return end_tag();
  }

  Result<std::unique_ptr<Stmt>> statement() {
    if (peek().kind != TokenKind::kName) return corrupt("expected the name of a tag");
    const Token tag = take();
    if (tag.text == "if") return if_statement(tag.line);
    if (tag.text == "for") return for_statement(tag.line);
    if (tag.text == "set") return set_statement(tag.line);
    if (tag.text == "macro") return macro_statement(tag.line);
    if (tag.text == "call") return call_statement(tag.line);
    if (tag.text == "filter") return filter_statement(tag.line);
    if (tag.text == "with") return with_statement(tag.line);
    if (tag.text == "generation") return generation_statement(tag.line);
    if (tag.text == "break" || tag.text == "continue") {
      if (loop_depth_ == 0) return corrupt(fmt::format("{} outside of a loop", tag.text));
      auto node = make(tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, tag.line);
      JIGE_DO(end_tag());
      return node;
    }
    return fail(Code::kUnsupported, "{}: line {}: the tag \"{}\" is not supported", where_,
                tag.line, tag.text);
  }

  Result<std::unique_ptr<Stmt>> if_statement(uint32_t line) {
    auto node = make(StmtKind::kIf, line);
    bool more = true;
    while (more) {
      JIGE_TRY(ExprPtr condition, expression());
      JIGE_DO(end_tag());
      JIGE_TRY(Body branch, body({"elif", "else", "endif"}));
      node->branches.emplace_back(std::move(condition), std::move(branch));
      more = skip_name("elif");
    }
    if (skip_name("else")) {
      JIGE_DO(end_tag());
      JIGE_TRY(Body branch, body({"endif"}));
      node->branches.emplace_back(nullptr, std::move(branch));
    }
    JIGE_DO(close());
    return node;
  }

  Result<Target> target(int depth = 0) {
    constexpr int kDepthMax = 8;
    if (depth > kDepthMax) return corrupt("names to unpack into are nested too deeply");
    Target result;
    bool nests = false;
    do {
      if (!result.names.empty() && (is_name("in") || is_operator("=") || is_operator(")"))) break;
      Target part;
      if (skip_operator("(")) {
        JIGE_TRY(part, target(depth + 1));
        JIGE_DO(expect_operator(")"));
      } else {
        JIGE_TRY(part.names.emplace_back(), take_name());
      }
      nests = nests || part.unpacks;
      result.names.insert(result.names.end(), part.names.begin(), part.names.end());
      result.parts.push_back(std::move(part));
      if (is_operator(",")) result.unpacks = true;
    } while (skip_operator(","));
    if (!result.unpacks) {
      Target only = std::move(result.parts[0]);
      return only;
    }
    if (!nests) result.parts.clear();
    return result;
  }

  Result<std::unique_ptr<Stmt>> for_statement(uint32_t line) {
    auto node = make(StmtKind::kFor, line);
    JIGE_TRY(node->target, target());
    if (!skip_name("in")) return corrupt("expected \"in\"");
    JIGE_TRY(node->value, without_ternary());
    if (skip_name("if")) {
      JIGE_TRY(node->condition, expression());
    }
    node->is_recursive = skip_name("recursive");
    JIGE_DO(end_tag());
    ++loop_depth_;
    JIGE_TRY(node->body, body({"else", "endfor"}));
    --loop_depth_;
    if (skip_name("else")) {
      JIGE_DO(end_tag());
      JIGE_TRY(node->else_body, body({"endfor"}));
    }
    JIGE_DO(close());
    return node;
  }

  Result<std::unique_ptr<Stmt>> set_statement(uint32_t line) {
    auto node = make(StmtKind::kSet, line);
    JIGE_TRY(node->target, target());
    if (!node->target.unpacks && skip_operator(".")) {
      if (peek().kind != TokenKind::kName) return corrupt("expected a name after \".\"");
      node->target.attribute = take().text;
    }
    if (skip_operator("=")) {
      JIGE_TRY(node->value, expression());
      JIGE_DO(end_tag());
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    JIGE_TRY(node->value, filter_chain(/*first_bare=*/false));
    JIGE_DO(end_tag());
    JIGE_TRY(node->body, body({"endset"}));
    JIGE_DO(close());
    return node;
  }

  Result<std::vector<Parameter>> parameters() {
    std::vector<Parameter> list;
    JIGE_DO(expect_operator("("));
    while (!is_operator(")")) {
      Parameter parameter;
      JIGE_TRY(parameter.name, take_name());
      if (skip_operator("=")) {
        JIGE_TRY(parameter.fallback, expression(/*tuples=*/false));
      } else if (!list.empty() && list.back().fallback) {
        return corrupt("a parameter without default follows one with a default");
      }
      list.push_back(std::move(parameter));
      if (!skip_operator(",")) break;
    }
    JIGE_DO(expect_operator(")"));
    return list;
  }

  // The body of a macro: loops outside of it do not count inside.
  Result<Body> macro_body(std::string_view end, bool& uses_extras) {
    const bool saw_before = std::exchange(saw_extras_, false);
    const uint32_t loops = std::exchange(loop_depth_, 0);
    JIGE_TRY(Body inner, body({end}));
    uses_extras = std::exchange(saw_extras_, saw_before);
    loop_depth_ = loops;
    return inner;
  }

  Result<std::unique_ptr<Stmt>> macro_statement(uint32_t line) {
    auto node = make(StmtKind::kMacro, line);
    JIGE_TRY(node->name, take_name());
    JIGE_TRY(node->parameters, parameters());
    JIGE_DO(end_tag());
    JIGE_TRY(node->body, macro_body("endmacro", node->uses_extras));
    JIGE_DO(close());
    return node;
  }

  Result<std::unique_ptr<Stmt>> call_statement(uint32_t line) {
    auto node = make(StmtKind::kCallBlock, line);
    if (is_operator("(")) {
      JIGE_TRY(node->parameters, parameters());
    }
    JIGE_TRY(node->value, expression());
    if (node->value->kind != ExprKind::kCall) return corrupt("expected a call");
    JIGE_DO(end_tag());
    JIGE_TRY(node->body, macro_body("endcall", node->uses_extras));
    JIGE_DO(close());
    return node;
  }

  Result<std::unique_ptr<Stmt>> filter_statement(uint32_t line) {
    auto node = make(StmtKind::kFilterBlock, line);
    JIGE_TRY(node->value, filter_chain(/*first_bare=*/true));
    JIGE_DO(end_tag());
    JIGE_TRY(node->body, body({"endfilter"}));
    JIGE_DO(close());
    return node;
  }

  Result<std::unique_ptr<Stmt>> with_statement(uint32_t line) {
    auto node = make(StmtKind::kWith, line);
    while (!at_end_of_tag()) {
      JIGE_TRY(const uint32_t name, take_name());
      JIGE_DO(expect_operator("="));
      JIGE_TRY(ExprPtr value, expression(/*tuples=*/false));
      node->assignments.emplace_back(name, std::move(value));
      if (!skip_operator(",")) break;
    }
    JIGE_DO(end_tag());
    JIGE_TRY(node->body, body({"endwith"}));
    JIGE_DO(close());
    return node;
  }

  Result<std::unique_ptr<Stmt>> generation_statement(uint32_t line) {
    auto node = make(StmtKind::kGeneration, line);
    has_generation_ = true;
    JIGE_DO(end_tag());
    JIGE_TRY(node->body, body({"endgeneration"}));
    JIGE_DO(close());
    return node;
  }

  uint32_t block_depth_ = 0;
  uint32_t loop_depth_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Result<Template> parse_template(std::string_view source, std::string_view where) {
  JIGE_TRY(std::vector<Token> tokens, tokenize(source, where));
  return Parser(std::move(tokens), where).run();
}

}  // namespace jige::text::jinja
