// The keywords of a JSON schema: which there are, whether their values have the right form, and
// what they say, apart from grammars.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/integer_range.h"
#include "grammar/number_range.h"
#include "grammar/repeat.h"

namespace jige::grammar {

// Whether `schema` is an object with known keywords alone, of the right form, that may stand
// together. Fails with kInvalidArgument or kUnsupported, naming the place.
Status check_keywords(const Json& schema, const std::string& path);

// What `type` says or, without it, the types of the other keywords; empty: any. The functions from
// here on REQUIRE check_keywords(schema).
std::vector<std::string> types_of(const Json& schema);
// Whether the value is of one of the types; empty: any.
bool is_of_types(const Json& value, const std::vector<std::string>& types);

// A least and a most number, 0 and no bound where they are absent. Fails with kInvalidArgument.
Result<Counts> counts_of(const Json& schema, std::string_view min, std::string_view max,
                         const std::string& path);

// The whole numbers of minimum, maximum, exclusiveMinimum and exclusiveMaximum; nothing where there
// are none of these. Fails with kInvalidArgument where no number is left.
Result<std::optional<IntegerRange>> integers_of(const Json& schema, const std::string& path);
// The same for numbers with fractions; whether there is one shows when it is built.
std::optional<NumberRange> numbers_of(const Json& schema);

// The schema that `reference`, the value of $ref, names. Fails with kInvalidArgument, kUnsupported.
Result<const Json*> find_reference(const Json& root, const Json& reference,
                                   const std::string& path);

struct ObjectMember {
  std::string name;
  const Json* schema;
  std::string path;
  bool required = false;
};

struct ObjectMembers {
  std::vector<ObjectMember> listed;  // in order
  const Json* additional = nullptr;  // the schema of others; null: there are none
  std::string additional_path;
  std::vector<std::string> names() const;
};

// Fails with kInvalidArgument where what is required cannot be there.
Result<ObjectMembers> members_of(const Json& schema, const std::string& path);

}  // namespace jige::grammar
