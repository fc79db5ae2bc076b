// Fields of text tables: lines with their numbers, CSV cells, numbers that must be whole.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::cluster {

// Lines of a text from 1; line feeds, carriage returns before them and a byte order mark at the
// beginning are left out.
class Lines {
 public:
  explicit Lines(std::string_view text);
  bool next();
  std::string_view line() const { return line_; }
  int64_t number() const { return number_; }

 private:
  std::string_view rest_, line_;
  int64_t number_ = 0;
};

// Cells between commas; a cell in double quotes may hold commas, and quotes written twice.
std::vector<std::string> split_csv(std::string_view line);
// Words between blanks.
std::vector<std::string> split_blanks(std::string_view line);

// The whole text as a finite number, or nothing.
std::optional<double> parse_double(std::string_view text);

// One record of a table: cells by name, errors that name source, line and field.
class Record {
 public:
  // REQUIRES: `names` and `cells` outlive the record and have one length.
  Record(std::string_view where, int64_t line, const std::vector<std::string>& names,
         const std::vector<std::string>& cells)
      : where_(where), line_(line), names_(names), cells_(cells) {}

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // The cell; empty when there is no such column.
  std::string text(std::string_view name) const;
  // A number in [low, high]. Fails with kCorrupt, naming source, line, field and value.
  Result<double> number(std::string_view name, double low, double high) const;
  // The same for a whole one.
  Result<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;

 private:
  const std::string* find(std::string_view name) const;

  std::string_view where_;
  int64_t line_;
  const std::vector<std::string>& names_;
  const std::vector<std::string>& cells_;
};

// Fails with kCorrupt unless every name is in the head line, naming those that are missing.
Status require_columns(const std::vector<std::string>& head, const std::vector<std::string>& wanted,
                       std::string_view where);

}  // namespace jige::cluster
