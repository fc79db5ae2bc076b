// Python's str.format as Jinja's sandbox has it: "{} {0.name[key]!r:>{width}}".format(…).
//
// Threads: as its Interpreter.
#pragma once

#include "base/result.h"
#include "text/jinja_arguments.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// format.format(arguments). Fails with kInvalidArgument where Python does and as format_value does.
// Of HTML (Value::markup) what is put in is escaped. REQUIRES: format is a string.
Result<Value> format_braces(Interpreter& run, const Value& format, const Arguments& given);

}  // namespace jige::text::jinja
