// Text tables for people: columns padded to their widest cell, numbers to the right.
//
//   Table table({{"part"}, {"bytes", Table::Align::kRight}});
//   table.row({"weights", "57.6 MiB"});
//   print_text(table.render());
//
// Threads: values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace jige::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title = {};
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  // Control characters are shown as escapes (printable.h). REQUIRES: one cell a column.
  void row(std::vector<std::string> cells);
  // A line between rows.
  void rule();

  // Lines with a line feed each, indented by two spaces; the titles first unless all are empty.
  std::string render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace jige::cli
