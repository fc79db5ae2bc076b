// The "pre_tokenizer" of a tokenizer.json: cuts a text into the words that BPE works on.
//
// Known: ByteLevel Split Metaspace Digits Whitespace WhitespaceSplit Punctuation BertPreTokenizer
// CharDelimiterSplit Sequence.
//
// Pieces go through the steps one after the other, depth first; nothing is stored for a whole text.
// A ByteLevel at the end does not spell its bytes as characters; the words stay raw bytes and
// leaves_bytes() tells the model so. That saves copying every word.
//
// Threads: immutable; const members from any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"
#include "text/split.h"

namespace jige::text {

// A piece that may be cut in two at a place behind its beginning. `text` may go on behind its end.
struct CutPlace {
  std::string_view text;
  size_t place = 0;
  PieceStart start = PieceStart::kInside;
  size_t front = 0;          // as of Piece
  std::string changed = {};  // what `text` shows, once a step changed it

  // Makes it the part [begin, end). REQUIRES: the place is inside.
  void cut_out(size_t begin, size_t end) {
    if (begin > front) start = PieceStart::kInside;
    front -= std::min(front, begin);
    text = text.substr(begin, end - begin);
    place -= begin;
  }
};

class PreTokenizer {
 public:
  // What a cut of a piece does to the parts that a step makes of it: other parts come out; one part
  // comes in two; or none, as parts meet there.
  enum class Cut { kNever, kInsidePart, kBetweenParts };

  class Step {
   public:
    virtual ~Step() = default;
    // What a cut would do, where the right part is a text that goes on. Makes `at` the part that
    // comes in two. REQUIRES: a character begins at the place.
    virtual Result<Cut> cut(CutPlace& at, RegexScratch& scratch) const = 0;
    // Whether it may put something in front of any part.
    virtual bool marks() const { return false; }
    // Cuts one piece and hands the parts to `next`.
    virtual Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const = 0;
  };

  // `component` may be null: the text stays whole. Fails with kUnsupported naming an unknown type.
  static Result<PreTokenizer> from_json(const Json* component, std::string_view where);

  // Cuts a piece and hands the words to `words`. REQUIRES: valid UTF-8. Fails where a pattern runs
  // away or `words` does.
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& words) const;

  // The same of all steps. kBetweenParts: the words of both sides are those of the whole.
  Result<Cut> cut(CutPlace& at, RegexScratch& scratch) const;

  // Whether the last step is ByteLevel, so that the words are raw bytes.
  bool leaves_bytes() const { return leaves_bytes_; }

  // Whether a step may put a space or a mark in front of the input.
  bool marks_start() const { return marks_start_; }
  // Whether a step does so at the beginning of the input alone.
  bool marks_start_alone() const { return marks_start_alone_; }

  // The split pattern of GPT-2, which ByteLevel uses.
  static constexpr std::string_view kGpt2Pattern =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

 private:
  Status apply_from(size_t step, const Piece& piece, RegexScratch& scratch, PieceSink& words) const;

  std::vector<std::shared_ptr<const Step>> steps_;
  bool leaves_bytes_ = false;
  bool marks_start_ = false;
  bool marks_start_alone_ = false;
};

}  // namespace jige::text
