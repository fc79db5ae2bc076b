#include "cluster/trace_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace jige::cluster {

Lines::Lines(std::string_view text) : rest_(text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

bool Lines::next() {
  if (rest_.empty()) return false;
  const size_t end = std::min(rest_.find('\n'), rest_.size());
  line_ = rest_.substr(0, end);
  if (line_.ends_with('\r')) line_.remove_suffix(1);
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  ++number_;
  return true;
}

std::vector<std::string> split_csv(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

std::vector<std::string> split_blanks(std::string_view line) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : line) {
    const bool blank = c == ' ' || c == '\t';
    if (!blank && !inside) words.emplace_back();
    if (!blank) words.back() += c;
    inside = !blank;
  }
  return words;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || at != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

const std::string* Record::find(std::string_view name) const {
  const auto at = std::ranges::find(names_, name);
  return at == names_.end() ? nullptr : &cells_[static_cast<size_t>(at - names_.begin())];
}

std::string Record::text(std::string_view name) const {
  const std::string* cell = find(name);
  return cell ? *cell : "";
}

Result<double> Record::number(std::string_view name, double low, double high) const {
  const std::string* cell = find(name);
  const std::string shown = cell ? *cell : "";
  const std::optional<double> value = parse_double(shown);
  if (value && *value >= low && *value <= high) return *value;
  return fail(Code::kCorrupt, "{}:{}: field {}: \"{}\" must be a number in {:g}..{:g}", where_,
              line_, name, shown.substr(0, 60), low, high);
}

Result<int64_t> Record::integer(std::string_view name, int64_t low, int64_t high) const {
  JIGE_TRY(const double value, number(name, static_cast<double>(low), static_cast<double>(high)));
  if (value == std::floor(value)) return static_cast<int64_t>(value);
  return fail(Code::kCorrupt, "{}:{}: field {}: {} must be a whole number", where_, line_, name,
              value);
}

Status require_columns(const std::vector<std::string>& head, const std::vector<std::string>& wanted,
                       std::string_view where) {
  std::string missing;
  for (const std::string& name : wanted) {
    if (std::ranges::find(head, name) == head.end()) missing += " " + name;
  }
  if (missing.empty()) return {};
  return fail(Code::kCorrupt, "{}: the first line lacks the columns{}", where, missing);
}

}  // namespace jige::cluster
