// The pieces of a text on its way through the pre-tokenizer: views, and the strings that changed
// pieces point into.
//
// Threads: one thread at a time.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace jige::text {

struct Piece {
  std::string_view text;
  // Whether the piece begins where the whole input begins.
  bool at_start = false;
};

struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> owned;  // a deque does not move its members

  // Keeps a string as long as the pieces and gives the view of it.
  std::string_view keep(std::string text) { return owned.emplace_back(std::move(text)); }
  void clear() {
    list.clear();
    owned.clear();
  }
};

}  // namespace jige::text
