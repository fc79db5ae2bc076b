#include "cli/text_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file_marks.h"
#include "base/json.h"
#include "text/unicode.h"

namespace jige::cli {

Result<std::string> TextLines::read(std::string_view line, int64_t number) const {
  const std::string where = fmt::format("{}:{}", shown_name(), number);
  if (as_they_stand && !text::is_valid_utf8(line)) {
    return fail(Code::kCorrupt, "{}: is not valid UTF-8; {}", where,
                encoding_remedy(line, number == 1));
  }
  if (as_they_stand)
    return std::string(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
  Result<Json> parsed = parse_json(line, where);
  if (!parsed) {
    return with_context(std::move(parsed.error()),
                        "give JSON lines, or --lines where every line is a text");
  }
  if (parsed->is_string()) return parsed->get<std::string>();
  if (!parsed->is_object()) {
    return fail(Code::kInvalidArgument, "{}: must be {{\"text\": …}} or a string", where);
  }
  return get_string(*parsed, "text", where);
}

}  // namespace jige::cli
