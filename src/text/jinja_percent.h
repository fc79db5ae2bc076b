// Python's printf-like formats: "%-5s|%03d|%(name).2f" % values.
//
//   %[(key)][flags #0- +][width or *][.precision or .*]type, type one of d i u o x X e E f F g G c
//   r s a; and %%
//
// Threads: pure functions.
#pragma once

#include "base/result.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// format % values: a tuple's values one after another, or one value; with keys those of a dict.
// Fails with kInvalidArgument where Python does, with kExhausted on widths and precisions beyond
// kFormatSizeMax. Of HTML (Value::markup) what is put in is escaped, types but s and r are not
// supported. REQUIRES: format is a string.
Result<Value> format_percent(const Value& format, const Value& values, Budget& budget);

}  // namespace jige::text::jinja
