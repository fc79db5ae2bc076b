#include "cluster/slowdown_table.h"

#include <algorithm>
#include <optional>

#include "cluster/trace_fields.h"

namespace jige::cluster {
namespace {

constexpr size_t kTypesMax = 4096;

}  // namespace

Result<SlowdownTable> SlowdownTable::parse(std::string_view csv, std::string_view where) {
  SlowdownTable table;
  std::vector<int32_t> columns;  // the row that each column is about
  std::vector<JobType> heads;
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
        auto type = parse_job_type(cells[i]);
        if (!type) {
          return fail(Code::kCorrupt, "{}:{}: cell {}: \"{}\" is no type such as \"MoE,4,2\"",
                      where, lines.number(), i + 1, cells[i]);
        }
        if (head_line) {
          if (std::ranges::find(heads, *type) != heads.end()) {
            return fail(Code::kCorrupt, "{}:{}: type \"{}\" has two columns", where, lines.number(),
                        cells[i]);
          }
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
      return fail(Code::kCorrupt, "{}: type \"{}\" has a column but no line", where,
                  to_string(head));
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
    if (names.empty() || names.back() != type.model) names.push_back(type.model);
  }
  return names;
}

}  // namespace jige::cluster
