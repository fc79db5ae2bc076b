// What the arguments of a call may be, from the `parameters` of its tool: a schema of objects
// alone.
//
// A schema that is something else at its top ($ref, anyOf, oneOf, allOf of one) is opened until its
// branches are of objects: references there are replaced by what they name. Deeper ones stay.
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace jige::api {

// `parameters` null: there are no arguments. Fails with kUnsupported or kInvalidArgument, naming
// the place, where a branch may not be of objects, references go round in a circle, or there are
// too many branches.
Result<Json> arguments_schema(const Json* parameters);

}  // namespace jige::api
