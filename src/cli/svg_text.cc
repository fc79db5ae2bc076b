#include "cli/svg_text.h"

#include <fmt/format.h>

#include "base/xml_text.h"

namespace jige::cli {

std::string svg_text(double x, double y, const char* color, const char* extra,
                     const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" {}>{}</text>\n", x, y, color,
                     extra, xml_text(text));
}

}  // namespace jige::cli
