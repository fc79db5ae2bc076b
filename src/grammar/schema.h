// JSON schemas as constraints.
//
//   any type     type (one or several), enum, const, nullable, $ref (#… in the same schema, also
//                in circles), anyOf and oneOf as alternatives, allOf of one; true, false
//   objects      properties, required, additionalProperties
//   arrays       items, prefixItems, minItems, maxItems
//   strings      minLength, maxLength, pattern, which the whole string must match; without these
//                the formats of string_formats.h
//   integers     minimum, maximum, exclusiveMinimum, exclusiveMaximum
//   passed over  title, description, default, examples, other formats and annotations
//
// Every other keyword is refused, and so are $ref, anyOf, oneOf and allOf beside what also
// restricts the value. What is built is never wider than the schema, and narrower where a text
// needs an order or an end: properties come in the schema's order, those that are not listed only
// where additionalProperties asks for them (or nothing is listed) and behind the others; keywords
// of one type without `type` stand for it; elements behind prefixItems need `items`. Threads: pure
// functions of the builder.
#pragma once

#include <cstddef>

#include "base/json.h"
#include "base/result.h"
#include "grammar/grammar.h"

namespace jige::grammar {

inline constexpr size_t kSchemaBytesMax = size_t{1} << 18;
inline constexpr size_t kPropertyNameBytesMax = 512;

// The texts of JSON that fit the schema. Fails with kInvalidArgument or kUnsupported, naming the
// place as "#/properties/age/multipleOf".
Result<NodeId> build_schema(GrammarBuilder& builder, const Json& schema);

}  // namespace jige::grammar
