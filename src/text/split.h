// Cutting a text at matches, in the five ways of tokenizer files. For "a-b" and matches of "-":
//
//   Removed             a|b
//   Isolated            a|-|b
//   MergedWithPrevious  a-|b
//   MergedWithNext      a|-b
//   Contiguous          like Isolated, but neighbouring matches stay together
//
// Pieces are handed on as they are cut, so that a long text needs no list of them.
//
// Threads: pure functions; a Splitter belongs to one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"

namespace jige::text {

// Where a piece begins: behind the beginning of the input, with an input, or with an input that
// goes on from earlier text, in front of which nothing is put.
enum class PieceStart { kInside, kInput, kContinuation };

// A part of the text on its way to the model. The view holds for the call that hands it on.
struct Piece {
  std::string_view text;
  PieceStart start = PieceStart::kInside;
  // Bytes at its beginning that steps put in front. A part behind them begins with the first
  // character of the input, and so at its beginning, too.
  size_t front = 0;

  // REQUIRES: begin <= end <= text.size().
  Piece part(size_t begin, size_t end) const {
    const std::string_view sub = text.substr(begin, end - begin);
    return begin > front ? Piece{sub} : Piece{sub, start, front - begin};
  }
};

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // Takes a piece that is not empty. An error ends the encoding.
  virtual Status take(const Piece& piece) = 0;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Reads the member "behavior". Fails with kCorrupt on an unknown name.
Result<SplitBehavior> behavior_from_json(const Json& component, std::string_view where);

struct SplitRule {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  // Treats what lies between matches as the matches.
  bool invert = false;
};

// Takes the matches in one piece, in order, and hands on the parts that the rule makes.
class Splitter {
 public:
  Splitter(const Piece& piece, const SplitRule& rule, PieceSink& sink)
      : piece_(piece), rule_(rule), sink_(sink) {}

  // REQUIRES: begins at or after the end of the match before.
  Status match(const Range& range);
  // Hands on what is behind the last match.
  Status finish();

 private:
  struct Part {
    Range range;
    bool is_match;
  };
  Status part(size_t begin, size_t end, bool is_match);
  Status emit(size_t begin, size_t end);

  const Piece& piece_;
  const SplitRule rule_;
  PieceSink& sink_;
  size_t done_ = 0;
  std::vector<Part> parts_;  // for the behaviours that look at neighbours
};

}  // namespace jige::text
