#include "cli/table.h"

#include <algorithm>

#include "base/check.h"
#include "base/printable.h"

namespace jige::cli {
namespace {

std::string padded(const std::string& text, size_t width, Table::Align align) {
  const std::string space(width - column_count(text), ' ');
  return align == Table::Align::kRight ? space + text : text + space;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = printable(column.title);
}

void Table::row(std::vector<std::string> cells) {
  JIGE_CHECK(cells.size() == columns_.size(), "{} cells in a table of {} columns", cells.size(),
             columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::rule() { rows_.emplace_back(); }

std::string Table::render() const {
  std::vector<size_t> widths;
  bool titled = false;
  std::vector<std::string> titles;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = column_count(columns_[i].title);
    for (const auto& cells : rows_) {
      if (!cells.empty()) width = std::max(width, column_count(cells[i]));
    }
    widths.push_back(width);
    titles.push_back(columns_[i].title);
    titled = titled || !columns_[i].title.empty();
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = " ";
    for (size_t i = 0; i < columns_.size(); ++i) {
      text += (i == 0 ? " " : "  ") + padded(cells[i], widths[i], columns_[i].align);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::vector<std::string> dashes;
  for (const size_t width : widths) {
    std::string dash;
    for (size_t i = 0; i < width; ++i) dash += "─";
    dashes.push_back(dash);
  }
  std::string text;
  if (titled) text += line(titles) + line(dashes);
  for (const auto& cells : rows_) text += line(cells.empty() ? dashes : cells);
  return text;
}

}  // namespace jige::cli
