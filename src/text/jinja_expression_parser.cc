#include "text/jinja_expression_parser.h"

#include <algorithm>
#include <charconv>

namespace jige::text::jinja {
namespace {

constexpr uint32_t kParseDepthMax = 100;

bool starts_argument(const Token& token) {
  if (token.kind == TokenKind::kOperator) {
    return token.text == "[" || token.text == "{";
  }
  if (token.kind == TokenKind::kName) {
    return token.text != "else" && token.text != "or" && token.text != "and" &&
           token.text != "is" && token.text != "in" && token.text != "if" && token.text != "not";
  }
  return token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
         token.kind == TokenKind::kFloat;
}

}  // namespace

// Counts how deep the parser's own calls nest.
struct ExpressionParser::Depth {
  explicit Depth(ExpressionParser& parser) : owner(parser) { ++owner.depth_; }
  ~Depth() { --owner.depth_; }
  Status check() const {
    if (owner.depth_ <= kParseDepthMax) return {};
    return fail(Code::kUnsupported, "{}: line {}: the expression nests deeper than {} levels",
                owner.where_, owner.line_, kParseDepthMax);
  }
  ExpressionParser& owner;
};

ExprPtr ExpressionParser::make(ExprKind kind) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = peek().line;
  return node;
}

Result<ExprPtr> ExpressionParser::finish(ExprPtr node) const {
  uint32_t height = 0;
  for (const ExprPtr& part : node->parts) {
    if (part) height = std::max(height, part->height);
  }
  for (const Argument& argument : node->arguments) {
    height = std::max(height, argument.value->height);
  }
  node->height = height + 1;
  if (node->height <= kTreeHeightMax) return node;
  return fail(Code::kUnsupported, "{}: line {}: the expression nests deeper than {} levels", where_,
              node->line, kTreeHeightMax);
}

Result<ExprPtr> ExpressionParser::expression(bool tuples) {
  JIGE_TRY(ExprPtr first, ternary());
  if (!tuples || !is_operator(",")) return first;
  ExprPtr node = make(ExprKind::kTuple);
  node->parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_end_of_tag() || is_operator(")")) break;
    JIGE_TRY(ExprPtr next, ternary());
    node->parts.push_back(std::move(next));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::without_ternary() {
  JIGE_TRY(ExprPtr first, either());
  if (!is_operator(",")) return first;
  ExprPtr node = make(ExprKind::kTuple);
  node->parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_end_of_tag()) break;
    JIGE_TRY(ExprPtr next, either());
    node->parts.push_back(std::move(next));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::ternary() {
  const Depth depth(*this);
  JIGE_DO(depth.check());
  JIGE_TRY(ExprPtr node, either());
  while (is_name("if")) {
    ExprPtr choice = make(ExprKind::kTernary);
    take();
    JIGE_TRY(ExprPtr condition, either());
    ExprPtr otherwise;
    if (skip_name("else")) {
      JIGE_TRY(otherwise, ternary());
    }
    choice->parts.push_back(std::move(node));
    choice->parts.push_back(std::move(condition));
    choice->parts.push_back(std::move(otherwise));
    JIGE_TRY(node, finish(std::move(choice)));
  }
  return node;
}

Result<ExprPtr> ExpressionParser::either() {
  JIGE_TRY(ExprPtr node, both());
  while (skip_name("or")) {
    ExprPtr pair = make(ExprKind::kOr);
    JIGE_TRY(ExprPtr right, both());
    pair->parts.push_back(std::move(node));
    pair->parts.push_back(std::move(right));
    JIGE_TRY(node, finish(std::move(pair)));
  }
  return node;
}

Result<ExprPtr> ExpressionParser::both() {
  JIGE_TRY(ExprPtr node, negation());
  while (skip_name("and")) {
    ExprPtr pair = make(ExprKind::kAnd);
    JIGE_TRY(ExprPtr right, negation());
    pair->parts.push_back(std::move(node));
    pair->parts.push_back(std::move(right));
    JIGE_TRY(node, finish(std::move(pair)));
  }
  return node;
}

Result<ExprPtr> ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Depth depth(*this);
  JIGE_DO(depth.check());
  ExprPtr node = make(ExprKind::kNot);
  take();
  JIGE_TRY(ExprPtr inner, negation());
  node->parts.push_back(std::move(inner));
  return finish(std::move(node));
}

// Takes a comparison operator, "in" and "not in" included; empty when there is none.
std::string ExpressionParser::comparison_operator() {
  for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (skip_operator(op)) return std::string(op);
  }
  if (skip_name("in")) return "in";
  if (is_name("not") && is_name("in", 1)) {
    take();
    take();
    return "not in";
  }
  return {};
}

Result<ExprPtr> ExpressionParser::comparison() {
  JIGE_TRY(ExprPtr first, sum());
  std::string op = comparison_operator();
  if (op.empty()) return first;
  ExprPtr node = make(ExprKind::kCompare);
  node->parts.push_back(std::move(first));
  for (; !op.empty(); op = comparison_operator()) {
    JIGE_TRY(ExprPtr next, sum());
    node->operators.push_back(std::move(op));
    node->parts.push_back(std::move(next));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::chain(Rule operand,
                                        std::initializer_list<std::string_view> operators) {
  JIGE_TRY(ExprPtr node, (this->*operand)());
  for (;;) {
    const auto op = std::find_if(operators.begin(), operators.end(),
                                 [&](std::string_view text) { return is_operator(text); });
    if (op == operators.end()) return node;
    ExprPtr pair = make(ExprKind::kBinary);
    pair->text = take().text;
    JIGE_TRY(ExprPtr right, (this->*operand)());
    pair->parts.push_back(std::move(node));
    pair->parts.push_back(std::move(right));
    JIGE_TRY(node, finish(std::move(pair)));
  }
}

Result<ExprPtr> ExpressionParser::sum() {
  return chain(&ExpressionParser::concatenation, {"+", "-"});
}

Result<ExprPtr> ExpressionParser::concatenation() {
  JIGE_TRY(ExprPtr first, product());
  if (!is_operator("~")) return first;
  ExprPtr node = make(ExprKind::kConcat);
  node->parts.push_back(std::move(first));
  while (skip_operator("~")) {
    JIGE_TRY(ExprPtr next, product());
    node->parts.push_back(std::move(next));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::product() {
  return chain(&ExpressionParser::power, {"*", "/", "//", "%"});
}

Result<ExprPtr> ExpressionParser::power() { return chain(&ExpressionParser::unary, {"**"}); }

Result<ExprPtr> ExpressionParser::unary() { return signed_unary(/*with_filters=*/true); }

Result<ExprPtr> ExpressionParser::signed_unary(bool with_filters) {
  const Depth depth(*this);
  JIGE_DO(depth.check());
  ExprPtr node;
  if (is_operator("-") || is_operator("+")) {
    node = make(is_operator("-") ? ExprKind::kNegative : ExprKind::kPositive);
    take();
    JIGE_TRY(ExprPtr inner, signed_unary(/*with_filters=*/false));
    node->parts.push_back(std::move(inner));
    JIGE_TRY(node, finish(std::move(node)));
  } else {
    JIGE_TRY(node, primary());
  }
  JIGE_TRY(node, postfix(std::move(node)));
  if (with_filters) return filters_and_tests(std::move(node));
  return node;
}

Result<ExprPtr> ExpressionParser::number(const Token& token) {
  ExprPtr node = make(ExprKind::kLiteral);
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      return corrupt(fmt::format("the number {} is out of range", token.text));
    }
    node->literal = Value::number(value);
    return node;
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    const char mark = static_cast<char>(token.text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  }
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(base == 10 ? begin : begin + 2, end, value, base);
  if (error != std::errc() || stop != end) {
    return corrupt(fmt::format("the number {} is out of range", token.text));
  }
  node->literal = Value::integer(value);
  return node;
}

ExprPtr ExpressionParser::constant_or_name(std::string_view text) {
  ExprPtr node = make(ExprKind::kLiteral);
  if (text == "true" || text == "True") {
    node->literal = Value::boolean(true);
  } else if (text == "false" || text == "False") {
    node->literal = Value::boolean(false);
  } else if (text == "none" || text == "None") {
    node->literal = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->name = intern(std::string(text));
    saw_extras_ = saw_extras_ || text == "varargs" || text == "kwargs";
  }
  return node;
}

Result<ExprPtr> ExpressionParser::primary() {
  const Token& token = peek();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return number(take());
  if (token.kind == TokenKind::kString) {
    ExprPtr node = make(ExprKind::kLiteral);
    std::string text;
    while (peek().kind == TokenKind::kString) text += take().text;
    node->literal = Value::string(std::move(text));
    return node;
  }
  if (token.kind == TokenKind::kName) {
    const Token name = take();
    return constant_or_name(name.text);
  }
  if (is_operator("(")) return bracketed();
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  return unexpected();
}

Result<ExprPtr> ExpressionParser::bracketed() {
  take();
  if (is_operator(")")) {
    ExprPtr empty = make(ExprKind::kTuple);
    take();
    return empty;
  }
  JIGE_TRY(ExprPtr node, expression());
  JIGE_DO(expect_operator(")"));
  return node;
}

Result<ExprPtr> ExpressionParser::list() {
  ExprPtr node = make(ExprKind::kList);
  take();
  while (!is_operator("]")) {
    JIGE_TRY(ExprPtr item, expression(/*tuples=*/false));
    node->parts.push_back(std::move(item));
    if (!skip_operator(",")) break;
  }
  JIGE_DO(expect_operator("]"));
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::dict() {
  ExprPtr node = make(ExprKind::kDict);
  take();
  while (!is_operator("}")) {
    JIGE_TRY(ExprPtr key, expression(/*tuples=*/false));
    JIGE_DO(expect_operator(":"));
    JIGE_TRY(ExprPtr value, expression(/*tuples=*/false));
    node->parts.push_back(std::move(key));
    node->parts.push_back(std::move(value));
    if (!skip_operator(",")) break;
  }
  JIGE_DO(expect_operator("}"));
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    if (is_operator("[")) {
      JIGE_TRY(node, subscript(std::move(node)));
    } else if (is_operator("(")) {
      ExprPtr call = make(ExprKind::kCall);
      JIGE_TRY(call->arguments, arguments());
      call->parts.push_back(std::move(node));
      JIGE_TRY(node, finish(std::move(call)));
    } else if (is_operator(".")) {
      take();
      const Token member = take();
      ExprPtr access = make(ExprKind::kMember);
      if (member.kind == TokenKind::kInteger) {
        access->kind = ExprKind::kIndex;
        JIGE_TRY(ExprPtr index, number(member));
        access->parts.push_back(std::move(node));
        access->parts.push_back(std::move(index));
      } else if (member.kind == TokenKind::kName) {
        access->text = member.text;
        access->parts.push_back(std::move(node));
      } else {
        return corrupt("expected a name after \".\"");
      }
      JIGE_TRY(node, finish(std::move(access)));
    } else {
      return node;
    }
  }
}

// [index], [a:b], [a:b:c]
Result<ExprPtr> ExpressionParser::subscript(ExprPtr node) {
  ExprPtr access = make(ExprKind::kIndex);
  take();
  access->parts.push_back(std::move(node));
  while (true) {
    ExprPtr part;
    if (!is_operator(":") && !is_operator("]")) {
      JIGE_TRY(part, expression());
    }
    access->parts.push_back(std::move(part));
    if (!skip_operator(":")) break;
    access->kind = ExprKind::kSlice;
  }
  JIGE_DO(expect_operator("]"));
  const bool is_slice = access->kind == ExprKind::kSlice;
  if (access->parts.size() > 4 || (!is_slice && !access->parts[1])) {
    return corrupt("an index or slice is malformed");
  }
  if (is_slice) access->parts.resize(4);
  return finish(std::move(access));
}

Result<ExprPtr> ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    if (skip_operator("|")) {
      JIGE_TRY(node, one_filter(std::move(node)));
    } else if (is_name("is")) {
      JIGE_TRY(node, test(std::move(node)));
    } else if (is_operator("(")) {
      ExprPtr call = make(ExprKind::kCall);
      JIGE_TRY(call->arguments, arguments());
      call->parts.push_back(std::move(node));
      JIGE_TRY(node, finish(std::move(call)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExpressionParser::one_filter(ExprPtr node) {
  ExprPtr filter = make(ExprKind::kFilter);
  if (peek().kind != TokenKind::kName) return corrupt("expected the name of a filter");
  filter->text = take().text;
  filter->parts.push_back(std::move(node));
  if (is_operator("(")) {
    JIGE_TRY(filter->arguments, arguments());
  }
  return finish(std::move(filter));
}

Result<ExprPtr> ExpressionParser::filter_chain(bool first_bare) {
  ExprPtr node;
  if (first_bare) {
    JIGE_TRY(node, one_filter(nullptr));
  }
  while (skip_operator("|")) {
    JIGE_TRY(node, one_filter(std::move(node)));
  }
  return node;
}

Result<ExprPtr> ExpressionParser::test(ExprPtr node) {
  take();
  ExprPtr check = make(ExprKind::kTest);
  const bool negated = skip_name("not");
  if (peek().kind != TokenKind::kName) return corrupt("expected the name of a test");
  check->text = take().text;
  check->parts.push_back(std::move(node));
  if (is_operator("(")) {
    JIGE_TRY(check->arguments, arguments());
  } else if (starts_argument(peek())) {
    JIGE_TRY(ExprPtr argument, primary());
    JIGE_TRY(argument, postfix(std::move(argument)));
    check->arguments.push_back({"", std::move(argument)});
  }
  JIGE_TRY(check, finish(std::move(check)));
  if (!negated) return check;
  ExprPtr inverse = make(ExprKind::kNot);
  inverse->parts.push_back(std::move(check));
  return finish(std::move(inverse));
}

Result<std::vector<Argument>> ExpressionParser::arguments() {
  using Spread = Argument::Spread;
  std::vector<Argument> list;
  bool plain = true, items = true, names = true;  // what may come next
  take();
  while (!is_operator(")")) {
    Argument argument;
    if (skip_operator("*")) {
      argument.spread = Spread::kItems;
    } else if (skip_operator("**")) {
      argument.spread = Spread::kEntries;
    } else if (peek().kind == TokenKind::kName && is_operator("=", 1)) {
      argument.name = take().text;
      take();
    }
    const bool named = !argument.name.empty();
    const bool fits = argument.spread == Spread::kEntries || named ? names : plain;
    if (argument.spread == Spread::kItems ? !items : !fits) {
      return corrupt("an argument stands behind one that must follow it");
    }
    names = argument.spread != Spread::kEntries && names;
    items = names && argument.spread != Spread::kItems && items;
    plain = items && !named && plain;
    JIGE_TRY(argument.value, expression(/*tuples=*/false));
    list.push_back(std::move(argument));
    if (!skip_operator(",")) break;
  }
  JIGE_DO(expect_operator(")"));
  return list;
}

}  // namespace jige::text::jinja
