// The tokens of a prompt and of the answer behind it, each once, with how often the answer has it:
// what penalties ask for, kept up to date token by token.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/draw.h"

namespace jige::serve {

class SeenTokens {
 public:
  void add_prompt(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) entry(token);
  }
  void add_generated(int32_t token) { ++entry(token).generated_count; }
  // In the order in which they came first; valid until the next call.
  std::span<const ops::SeenToken> all() const { return entries_; }

 private:
  ops::SeenToken& entry(int32_t token) {
    const auto [at, is_new] = places_.try_emplace(token, entries_.size());
    if (is_new) entries_.push_back({.token = token, .generated_count = 0});
    return entries_[at->second];
  }

  std::vector<ops::SeenToken> entries_;
  std::unordered_map<int32_t, size_t> places_;
};

}  // namespace jige::serve
