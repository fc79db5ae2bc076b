// Words on pictures: what the charts, maps and pages of this folder have in common.
//
// Threads: pure functions.
#pragma once

#include <string>

namespace jige::cli {

inline constexpr const char* kSvgInk = "#24292f";
inline constexpr const char* kSvgFaint = "#6e7781";

// A <text> element at a place in pixels; `extra` are attributes, "" for none. The text is escaped.
std::string svg_text(double x, double y, const char* color, const char* extra,
                     const std::string& text);

}  // namespace jige::cli
