// What the tests of reasoning share.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/reasoning.h"

namespace jige::text::testing {

struct Parsed {
  std::string reasoning, content;
  bool operator==(const Parsed&) const = default;
};

inline void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << Json(parsed.reasoning).dump() << " and " << Json(parsed.content).dump();
}

inline Parsed parse_pieces(ReasoningStart start, const std::vector<std::string>& pieces) {
  ReasoningParser parser(start);
  const bool any_order = start == ReasoningStart::kChannels;
  Parsed parsed;
  const auto add = [&](const ReasoningPiece& piece) {
    EXPECT_TRUE(any_order || piece.reasoning.empty() || parsed.content.empty());
    parsed.reasoning += piece.reasoning;
    parsed.content += piece.content;
  };
  for (const std::string& piece : pieces) {
    add(parser.push(piece));
    EXPECT_TRUE(any_order || parsed.content.empty() || !parser.is_inside());
  }
  add(parser.finish());
  EXPECT_TRUE(parsed.reasoning.empty() || parser.is_opened());
  return parsed;
}

// One token for each of the letters, and marks as tokens of their own, special or not.
inline Tokenizer marks_tokenizer(const std::string& letters,
                                 const std::vector<std::pair<std::string, bool>>& marks) {
  Json vocab = Json::object();
  for (const char c : std::set<char>(letters.begin(), letters.end())) {
    const std::string token = c == '\n' ? "Ċ" : c == ' ' ? "Ġ" : std::string(1, c);
    vocab[token] = vocab.size();
  }
  Json added = Json::array();
  for (const auto& [mark, special] : marks) {
    added.push_back({{"id", vocab.size() + added.size()},
                     {"content", mark},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  const Json json = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  auto tokenizer = Tokenizer::from_json(json.dump(), "test");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

}  // namespace jige::text::testing
