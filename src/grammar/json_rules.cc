#include "grammar/json_rules.h"

#include <fmt/format.h>

#include <string_view>

namespace jige::grammar {
namespace {

ByteSet bytes_of(std::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.set(static_cast<uint8_t>(byte));
  return set;
}

const ByteSet& digit_bytes() {
  static const ByteSet set = bytes_of("0123456789");
  return set;
}

const ByteSet& hex_bytes() {
  static const ByteSet set = bytes_of("0123456789abcdefABCDEF");
  return set;
}

// What may stand in a string as it is.
const CodePoints& plain_characters() {
  static const CodePoints set =
      CodePoints().add(0, 0x1F).add('"', '"').add('\\', '\\').complement();
  return set;
}

std::string escape_of(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  }
}

// Four hexadecimal digits, or two pairs of them that make one character.
NodeId hexadecimal(GrammarBuilder& builder, NodeId next) {
  const NodeId two = builder.bytes(hex_bytes(), builder.bytes(hex_bytes(), next));
  const NodeId three = builder.bytes(hex_bytes(), two);
  const NodeId low =
      builder.text("\\u", builder.bytes(bytes_of("dD"), builder.bytes(bytes_of("cdefCDEF"), two)));
  const NodeId low_behind_two = builder.bytes(hex_bytes(), builder.bytes(hex_bytes(), low));
  return builder.split(
      {builder.bytes(bytes_of("0123456789abcefABCEF"), three),
       builder.bytes(bytes_of("dD"),
                     builder.split({builder.bytes(bytes_of("01234567"), two),
                                    builder.bytes(bytes_of("89abAB"), low_behind_two)}))});
}

}  // namespace

NodeId spell_in_json(GrammarBuilder& builder, const CodePoints& characters, NodeId next) {
  const CodePoints escaped = characters.without(plain_characters());
  const CodePoints plain = characters.without(escaped);
  std::vector<NodeId> branches;
  if (!plain.empty()) branches.push_back(plain.node(builder, next));
  std::vector<std::string> escapes;
  for (const CodePoints::Range& range : escaped.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) escapes.push_back(escape_of(c));
  }
  if (!escapes.empty()) branches.push_back(one_of(builder, std::move(escapes), next));
  return builder.split(branches);
}

NodeId JsonRules::boolean(NodeId next) {
  return builder_.split({builder_.text("true", next), builder_.text("false", next)});
}

NodeId JsonRules::colon(NodeId next) {
  return builder_.byte(':', builder_.split({next, builder_.byte(' ', next)}));
}

NodeId JsonRules::digits(Counts counts, NodeId next) {
  return repeat(builder_, counts, next,
                [&](NodeId after) { return builder_.bytes(digit_bytes(), after); });
}

RuleId JsonRules::space_rule() {
  if (space_) return *space_;
  space_ = builder_.add_rule();
  const NodeId end = builder_.end();
  const NodeId indent = repeat(builder_, {0, kIndentMax}, end,
                               [&](NodeId after) { return builder_.byte(' ', after); });
  builder_.define(*space_,
                  builder_.split({end, builder_.byte(' ', end), builder_.byte('\n', indent)}));
  return *space_;
}

RuleId JsonRules::rare_character_rule() {
  if (rare_) return *rare_;
  rare_ = builder_.add_rule();
  const NodeId end = builder_.end();
  const NodeId escape =
      builder_.byte('\\', builder_.split({builder_.bytes(bytes_of("\"\\/bfnrt"), end),
                                          builder_.byte('u', hexadecimal(builder_, end))}));
  builder_.define(
      *rare_, builder_.split({CodePoints().add(0x80, kCodePointMax).node(builder_, end), escape}));
  return *rare_;
}

NodeId JsonRules::character(NodeId next) {
  static const CodePoints plain = plain_characters().without(CodePoints().add(0x80, kCodePointMax));
  return builder_.split({plain.node(builder_, next), builder_.call(rare_character_rule(), next)});
}

NodeId JsonRules::string(Counts characters, NodeId next) {
  const NodeId body = repeat(builder_, characters, builder_.byte('"', next),
                             [&](NodeId after) { return character(after); });
  return builder_.byte('"', body);
}

RuleId JsonRules::string_rule() {
  if (string_) return *string_;
  string_ = builder_.add_rule();
  builder_.define(*string_, string(Counts{}, builder_.end()));
  return *string_;
}

RuleId JsonRules::integer_rule() {
  if (integer_) return *integer_;
  integer_ = builder_.add_rule();
  const NodeId end = builder_.end();
  const NodeId digits_of =
      builder_.split({builder_.byte('0', end),
                      builder_.bytes(bytes_of("123456789"), digits({0, kDigitsMax - 1}, end))});
  builder_.define(*integer_, builder_.split({digits_of, builder_.byte('-', digits_of)}));
  return *integer_;
}

RuleId JsonRules::number_rule() {
  if (number_) return *number_;
  number_ = builder_.add_rule();
  const NodeId end = builder_.end();
  const NodeId power = digits({1, 2}, end);
  const NodeId exponent = builder_.split(
      {end, builder_.bytes(bytes_of("eE"),
                           builder_.split({power, builder_.bytes(bytes_of("+-"), power)}))});
  const NodeId fraction =
      builder_.split({exponent, builder_.byte('.', digits({1, kDigitsMax}, exponent))});
  builder_.define(*number_, integer(fraction));
  return *number_;
}

RuleId JsonRules::array_rule() {
  if (array_) return *array_;
  array_ = builder_.add_rule();
  const NodeId close = builder_.byte(']', builder_.end());
  const NodeId more = builder_.reserve_split();
  builder_.set_split(more, {comma(value(more)), space(close)});
  builder_.define(*array_, builder_.byte('[', builder_.split({close, space(value(more))})));
  return *array_;
}

RuleId JsonRules::object_rule() {
  if (object_) return *object_;
  object_ = builder_.add_rule();
  const NodeId close = builder_.byte('}', builder_.end());
  const NodeId more = builder_.reserve_split();
  const NodeId pair = string(colon(value(more)));
  builder_.set_split(more, {comma(pair), space(close)});
  builder_.define(*object_, builder_.byte('{', builder_.split({close, space(pair)})));
  return *object_;
}

RuleId JsonRules::value_rule() {
  if (value_) return *value_;
  value_ = builder_.add_rule();
  const NodeId end = builder_.end();
  builder_.define(*value_, builder_.split({object(end), array(end), string(end), number(end),
                                           boolean(end), null(end)}));
  return *value_;
}

}  // namespace jige::grammar
