// Text inside XML and HTML.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace jige {

// & < > " as entities, control characters left out.
std::string xml_text(std::string_view text);

}  // namespace jige
