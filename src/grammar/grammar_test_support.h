// What the tests of this folder share: constraints by a few words, texts tried on them.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "grammar/constraint_compiler.h"

namespace jige::grammar::testing {

using Kind = ConstraintSource::Kind;

inline Result<std::shared_ptr<const Grammar>> compiled(const ConstraintSource& source) {
  JIGE_TRY(Grammar grammar, compile_grammar(source));
  return std::make_shared<const Grammar>(std::move(grammar));
}

inline std::shared_ptr<const Grammar> grammar_of(const ConstraintSource& source) {
  auto grammar = compiled(source);
  if (!grammar) ADD_FAILURE() << grammar.error().message;
  return grammar ? *grammar : nullptr;
}

inline Acceptor acceptor_of(const ConstraintSource& source) {
  return std::move(*Acceptor::create(grammar_of(source)));
}

// The state behind a text, or kNoState.
inline int state_behind(Acceptor& acceptor, std::string_view text) {
  int state = acceptor.start();
  for (const char byte : text) {
    Work work;
    const auto next = acceptor.next(state, static_cast<uint8_t>(byte), work);
    if (!next) {
      ADD_FAILURE() << next.error().message;
      return kNoState;
    }
    state = *next;
    if (state == kNoState) break;
  }
  return state;
}

inline bool fits(Acceptor& acceptor, std::string_view text) {
  const int state = state_behind(acceptor, text);
  return state != kNoState && acceptor.accepts(state);
}

inline bool fits(const ConstraintSource& source, std::string_view text) {
  Acceptor acceptor = acceptor_of(source);
  return fits(acceptor, text);
}

// Walks from the start by random bytes until the text is long and may end; empty when it does not
// come to an end. Every state must lead on.
inline std::string random_text(Acceptor& acceptor, Rng& rng, size_t bytes_wanted) {
  std::string text;
  int state = acceptor.start();
  while (text.size() < bytes_wanted + 2000) {
    std::vector<std::pair<char, int>> ways;
    // Brackets and quotes first where the text is to end.
    const bool ending = text.size() >= bytes_wanted;
    if (acceptor.accepts(state) && (ending || acceptor.is_last(state) || rng.below(8) == 0)) {
      return text;
    }
    for (int byte = 0; byte < 256; ++byte) {
      Work work;
      const auto next = acceptor.next(state, static_cast<uint8_t>(byte), work);
      if (!next) {
        ADD_FAILURE() << next.error().message;
        return {};
      }
      if (*next == kNoState) continue;
      const char c = static_cast<char>(byte);
      const int weight = std::string_view("]}\"").find(c) != std::string_view::npos ? 40 : 1;
      for (int i = 0; i < (ending ? weight : 1); ++i) ways.emplace_back(c, *next);
    }
    if (ways.empty()) {
      ADD_FAILURE() << "no byte may follow " << text << ", which may not end";
      return {};
    }
    const auto& [byte, next] = ways[rng.below(ways.size())];
    text += byte;
    state = next;
  }
  return {};
}

}  // namespace jige::grammar::testing
