// CodePoints: a set of Unicode characters, and the bytes that spell them.
//
// Surrogates are in no set: UTF-8 has no form for them.
// Threads: values.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/grammar.h"

namespace jige::grammar {

inline constexpr char32_t kCodePointMax = 0x10FFFF;

class CodePoints {
 public:
  struct Range {
    char32_t first, last;
    auto operator<=>(const Range&) const = default;
  };

  CodePoints() = default;
  static CodePoints all() { return CodePoints().add(0, kCodePointMax); }
  static CodePoints of(char32_t character) { return CodePoints().add(character, character); }

  // REQUIRES: first <= last.
  CodePoints& add(char32_t first, char32_t last);
  CodePoints& add(const CodePoints& other);
  CodePoints without(const CodePoints& other) const;
  CodePoints complement() const { return all().without(*this); }
  bool contains(char32_t character) const;
  bool empty() const { return ranges_.empty(); }
  // Ascending, apart from one another.
  const std::vector<Range>& ranges() const { return ranges_; }

  // One character of the set in UTF-8, then `next`. REQUIRES: not empty.
  NodeId node(GrammarBuilder& builder, NodeId next) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace jige::grammar
