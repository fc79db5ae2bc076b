#include "formats/module_patterns.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace jige::formats {
namespace {

constexpr std::string_view kExpressionMark = "re:";
constexpr size_t kPatternBytesMax = 4096;

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

bool begins_or_ends(std::string_view module, std::string_view part) {
  if (module.ends_with(part)) return true;
  if (!module.starts_with(part)) return false;
  return part.ends_with('.') || module[part.size()] == '.';
}

}  // namespace

Status ModulePatterns::add_expression(std::string_view text, std::string_view where) {
  JIGE_TRY(auto regex, text::Regex::compile(fmt::format("\\A(?:{})", text), where));
  expressions_.push_back(
      {.text = std::string(text), .regex = std::make_shared<const text::Regex>(std::move(regex))});
  return {};
}

Status ModulePatterns::add(const std::string& text, PatternStyle style, std::string_view where) {
  if (text.empty() || text.size() > kPatternBytesMax) {
    return fail(Code::kCorrupt, "{}: an entry has {} bytes; it must have 1 to {}", where,
                text.size(), kPatternBytesMax);
  }
  if (style == PatternStyle::kCompressedTensors) {
    if (text.starts_with(kExpressionMark)) {
      return add_expression(std::string_view(text).substr(kExpressionMark.size()), where);
    }
    if (text == "Linear") {
      every_linear_ = true;
    } else {
      names_.insert(text);
    }
    return {};
  }
  if (!is_plain(text)) return add_expression(fmt::format("(?:{})(?=\\.|\\z)", text), where);
  parts_.push_back(text);
  return {};
}

Result<ModulePatterns> ModulePatterns::parse(const Json* list, PatternStyle style,
                                             std::string_view where) {
  ModulePatterns out;
  if (!list || list->is_null()) return out;
  if (!list->is_array() || list->size() > kModulePatternsMax) {
    return fail(Code::kCorrupt, "{}: must be a list of at most {} names of modules", where,
                kModulePatternsMax);
  }
  for (const Json& entry : *list) {
    if (!entry.is_string()) {
      return fail(Code::kCorrupt, "{}: has an entry that is no string: {}", where,
                  dump_json(entry).substr(0, 80));
    }
    JIGE_DO(out.add(entry.get<std::string>(), style, where));
  }
  return out;
}

Result<PatternMatch> ModulePatterns::match(std::string_view module) const {
  if (!names_.empty() && names_.contains(std::string(module))) return PatternMatch::kName;
  for (const std::string& part : parts_) {
    if (begins_or_ends(module, part)) return PatternMatch::kName;
  }
  text::RegexScratch scratch;
  for (const Expression& expression : expressions_) {
    text::Regex::Scan scan(*expression.regex, module, scratch);
    text::Range range;
    JIGE_TRY(const bool found, scan.next(range));
    if (found) return PatternMatch::kExpression;
  }
  return every_linear_ ? PatternMatch::kClass : PatternMatch::kNone;
}

bool ModulePatterns::empty() const {
  return names_.empty() && parts_.empty() && expressions_.empty() && !every_linear_;
}

bool ModulePatterns::operator==(const ModulePatterns& other) const {
  return names_ == other.names_ && parts_ == other.parts_ && every_linear_ == other.every_linear_ &&
         std::equal(expressions_.begin(), expressions_.end(), other.expressions_.begin(),
                    other.expressions_.end(),
                    [](const auto& a, const auto& b) { return a.text == b.text; });
}

}  // namespace jige::formats
