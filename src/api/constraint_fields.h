// The fields that say what an answer may be: response_format, guided_json, guided_regex,
// guided_choice, guided_grammar and structured_outputs. At most one of them may ask for anything.
//
// Threads: pure functions, but for what the model's ConstraintCompiler keeps.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/field_reader.h"
#include "api/served_model.h"
#include "grammar/constraint.h"
#include "grammar/constraint_compiler.h"

namespace jige::api {

// Compiles it. Fails with 400 and the field that it came from, or 503 where other answers'
// constraints leave no memory for it.
ApiResult<std::shared_ptr<grammar::Constraint>> compile_constraint(
    const ServedModel& model, const grammar::ConstraintSource& source, const std::string& param);

// The constraint of a request, or null where it has none; what is wrong is noted in `fields`.
std::shared_ptr<grammar::Constraint> read_constraint(FieldReader& fields, const ServedModel& model);

// The schema of the JSON that response_format asks for; none where it asks for no JSON.
std::optional<Json> response_schema(FieldReader& fields);

}  // namespace jige::api
