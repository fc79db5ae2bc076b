#include "text/component.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::text {

Result<std::string> component_type(const Json& component, std::string_view where) {
  const Json* type = find_field(component, "type");
  if (!type || !type->is_string()) {
    return fail(Code::kCorrupt, "{}: a component has no \"type\"", where);
  }
  return type->get<std::string>();
}

tl::unexpected<Error> unsupported_component(std::string_view kind, std::string_view type,
                                            std::string_view where) {
  return fail(Code::kUnsupported, "{}: the {} \"{}\" is not supported", where, kind, type);
}

Result<const Json*> component_list(const Json& component, const char* field,
                                   std::string_view where) {
  const Json* list = find_field(component, field);
  if (!list || !list->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of components", where, field);
  }
  return list;
}

Result<Pattern> Pattern::from_json(const Json& component, std::string_view where) {
  const Json* pattern = find_field(component, "pattern");
  if (pattern) {
    const Json* text = pattern->is_string() ? pattern : find_field(*pattern, "String");
    if (text && text->is_string()) {
      auto value = text->get<std::string>();
      if (value.empty()) {
        return fail(Code::kUnsupported, "{}: an empty \"pattern\" is not supported", where);
      }
      return literal(std::move(value));
    }
    const Json* expression = find_field(*pattern, "Regex");
    if (expression && expression->is_string()) {
      JIGE_TRY(Regex regex, Regex::compile(expression->get<std::string>(), where));
      return Pattern({}, std::move(regex));
    }
  }
  return fail(Code::kCorrupt, "{}: \"pattern\" must be {{\"String\": …}} or {{\"Regex\": …}}",
              where);
}

Result<std::optional<size_t>> Pattern::match_at_start(std::string_view text,
                                                      RegexScratch& scratch) const {
  if (!regex_) return text.starts_with(text_) ? std::optional(text_.size()) : std::nullopt;
  Range match;
  JIGE_TRY(const bool found, Regex::Scan(*regex_, text, scratch).next(match));
  return found && match.begin == 0 ? std::optional(match.end) : std::nullopt;
}

bool Pattern::crosses(std::string_view left, std::string_view right) const {
  if (regex_) {
    RegexScratch scratch;
    const auto cut =
        cut_among_matches(*regex_, std::string(left).append(right), left.size(), scratch);
    return !cut || !cut->allowed;
  }
  const size_t most = text_.size() - 1;
  if (right.size() < most) return true;
  std::string around(left.substr(left.size() - std::min(left.size(), most)));
  around += right.substr(0, most);
  return find_text(around, text_) != around.npos;
}

Result<std::string> Pattern::replace_all(std::string_view text, std::string_view replacement,
                                         RegexScratch& scratch) const {
  if (text.empty()) return std::string();
  std::vector<Range> matches;
  JIGE_DO(for_each(text, scratch, [&](const Range& match) -> Status {
    matches.push_back(match);
    return {};
  }));
  const size_t size_max = text.size() + matches.size() * replacement.size();
  if (size_max > kTextBytesMax) {
    return fail(Code::kExhausted, "replacing {} matches makes the text longer than {} bytes",
                matches.size(), kTextBytesMax);
  }
  std::string out;
  out.reserve(size_max);
  size_t from = 0;
  for (const Range& match : matches) {
    out.append(text.substr(from, match.begin - from)).append(replacement);
    from = match.end;
  }
  out.append(text.substr(from));
  return out;
}

}  // namespace jige::text
