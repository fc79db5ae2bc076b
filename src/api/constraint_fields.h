// The fields that say what an answer may be: response_format, guided_json, guided_regex,
// guided_choice and structured_outputs. At most one of them may ask for anything.
//
// Threads: pure functions, but for what the model's ConstraintCompiler keeps.
#pragma once

#include <memory>

#include "api/field_reader.h"
#include "api/served_model.h"
#include "grammar/constraint.h"

namespace jige::api {

// The constraint of a request, or null where it has none; what is wrong is noted in `fields`.
std::shared_ptr<grammar::Constraint> read_constraint(FieldReader& fields, const ServedModel& model);

}  // namespace jige::api
