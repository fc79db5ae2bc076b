// Python's format specifications, what stands behind the colon in "{:>8.2f}":
//
//   [[fill]align][sign][z][#][0][width][, or _][.precision][type]
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// format(value, spec). Fails with kInvalidArgument where Python does, and with kExhausted on widths
// and precisions beyond kFormatSizeMax.
Result<std::string> format_value(const Value& value, std::string_view spec, Budget& budget);

}  // namespace jige::text::jinja
