// Formats of texts in JSON schemas as regular expressions: `"format": "date"` and its like.
//
//   date-time  date  time  duration   RFC 3339; the offset from UTC is there, and days exist
//   uuid  email  hostname  ipv4  ipv6
//
// Every text that an expression matches is of the format. Not every one of the format is matched:
// no leap seconds, no years and months of durations, no addresses in quotes, of IPv6 eight groups.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace jige::grammar {

// The expression of a format; none for those that are not known, which say nothing.
std::optional<std::string> format_expression(std::string_view format);

}  // namespace jige::grammar
