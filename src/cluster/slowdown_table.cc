#include "cluster/slowdown_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "cluster/trace_fields.h"

namespace jige::cluster {
namespace {

constexpr size_t kTypesMax = 4096;

std::optional<std::tuple<std::string, int32_t, int32_t>> parse_type(const std::string& cell) {
  const size_t second = cell.rfind(',');
  if (second == std::string::npos || second == 0) return std::nullopt;
  const size_t first = cell.rfind(',', second - 1);
  if (first == std::string::npos || first == 0) return std::nullopt;
  int32_t gpus = 0, nodes = 0;
  const auto read = [](std::string_view text, int32_t& number) {
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && at == text.data() + text.size() && number > 0;
  };
  const std::string_view text = cell;
  if (!read(text.substr(first + 1, second - first - 1), gpus) ||
      !read(text.substr(second + 1), nodes)) {
    return std::nullopt;
  }
  return std::tuple(cell.substr(0, first), gpus, nodes);
}

}  // namespace

Result<SlowdownTable> SlowdownTable::parse(std::string_view csv, std::string_view where) {
  SlowdownTable table;
  std::vector<int32_t> columns;  // the row that each column is about
  std::vector<std::tuple<std::string, int32_t, int32_t>> heads;
  std::vector<std::vector<double>> rows;
  Lines lines(csv);
  while (lines.next()) {
    const std::vector<std::string> cells = split_csv(lines.line());
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (heads.empty() ? cells.size() < 2 : cells.size() != heads.size() + 1) {
      return fail(Code::kCorrupt,
                  "{}:{}: has {} cells; the first line names the types, and each "
                  "line below has its own and a share for each",
                  where, lines.number(), cells.size());
    }
    const bool head_line = heads.empty();
    for (size_t i = head_line ? 1 : 0; i < cells.size(); ++i) {
      if (head_line || i == 0) {
        auto type = parse_type(cells[i]);
        if (!type) {
          return fail(Code::kCorrupt, "{}:{}: cell {}: \"{}\" is no type such as \"MoE,4,2\"",
                      where, lines.number(), i + 1, cells[i]);
        }
        if (head_line) {
          heads.push_back(std::move(*type));
        } else if (!table.types_.emplace(*type, static_cast<int32_t>(rows.size())).second) {
          return fail(Code::kCorrupt, "{}:{}: type \"{}\" comes twice", where, lines.number(),
                      cells[i]);
        } else {
          rows.emplace_back();
        }
        continue;
      }
      const std::optional<double> share = parse_double(cells[i]);
      if (!share || *share <= 0 || *share > 10) {
        return fail(Code::kCorrupt, "{}:{}: cell {}: \"{}\" is no share in (0, 10]", where,
                    lines.number(), i + 1, cells[i]);
      }
      rows.back().push_back(*share);
    }
    if (heads.size() > kTypesMax) {
      return fail(Code::kExhausted, "{}: more than {} types", where, kTypesMax);
    }
  }
  for (const auto& head : heads) {
    const auto row = table.types_.find(head);
    if (row == table.types_.end()) {
      return fail(Code::kCorrupt, "{}: type \"{},{},{}\" has a column but no line", where,
                  std::get<0>(head), std::get<1>(head), std::get<2>(head));
    }
    columns.push_back(row->second);
  }
  if (rows.empty() || rows.size() != heads.size()) {
    return fail(Code::kCorrupt, "{}: has {} lines for {} columns", where, rows.size(),
                heads.size());
  }
  table.shares_.resize(rows.size() * rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t column = 0; column < heads.size(); ++column) {
      table.shares_[row * rows.size() + static_cast<size_t>(columns[column])] = rows[row][column];
    }
  }
  return table;
}

int32_t SlowdownTable::type_of(const std::string& model, int32_t gpus, int32_t nodes) const {
  const auto type = types_.find({model, gpus, nodes});
  return type == types_.end() ? -1 : type->second;
}

std::vector<std::string> SlowdownTable::models() const {
  std::vector<std::string> names;
  for (const auto& [type, index] : types_) {
    if (names.empty() || names.back() != std::get<0>(type)) names.push_back(std::get<0>(type));
  }
  return names;
}

}  // namespace jige::cluster
