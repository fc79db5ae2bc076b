// For tests: reads the recorded fixtures of tests/fixtures/text (see tests/tools/record_text.py).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace jige::text {

using Ids = std::vector<int32_t>;

inline std::string fixture_path(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/" + name;
}

// The rows of a .jsonl fixture; a failed read is a failed test.
inline std::vector<Json> fixture_rows(const std::string& name) {
  std::vector<Json> rows;
  const auto text = read_file(fixture_path(name));
  EXPECT_TRUE(text.has_value()) << name;
  if (!text) return rows;
  size_t from = 0;
  while (from < text->size()) {
    size_t end = text->find('\n', from);
    if (end == std::string::npos) end = text->size();
    const auto row = parse_json(std::string_view(*text).substr(from, end - from), name);
    EXPECT_TRUE(row.has_value()) << row.error().message;
    if (row) rows.push_back(*row);
    from = end + 1;
  }
  return rows;
}

// The folders below a fixture folder, sorted.
inline std::vector<std::string> fixture_folders(const std::string& name) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(fixture_path(name))) {
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// The input of a row: "text", or the bytes spelled by "hex".
inline std::string row_input(const Json& row) {
  if (row.contains("text")) return row["text"].get<std::string>();
  const auto hex = row["hex"].get<std::string>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// The tokenizer of a model family; one that does not load is a failed test.
inline Tokenizer family(const std::string& name) {
  auto tokenizer = Tokenizer::load(fixture_path("tokenizers/" + name));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return *tokenizer;
}

}  // namespace jige::text
