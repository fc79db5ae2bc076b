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

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"
#include "text/split.h"

namespace jige::text {

class PreTokenizer {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    // Cuts one piece and hands the parts to `next`.
    virtual Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const = 0;
  };

  // `component` may be null: the text stays whole. Fails with kUnsupported naming an unknown type.
  static Result<PreTokenizer> from_json(const Json* component, std::string_view where);

  // Cuts a piece and hands the words to `words`. REQUIRES: valid UTF-8. Fails where a pattern runs
  // away or `words` does.
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& words) const;

  // Whether the last step is ByteLevel, so that the words are raw bytes.
  bool leaves_bytes() const { return leaves_bytes_; }

  // Whether a step may put a space or a mark in front of the input.
  bool marks_start() const { return marks_start_; }

  // The split pattern of GPT-2, which ByteLevel uses.
  static constexpr std::string_view kGpt2Pattern =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

 private:
  Status apply_from(size_t step, const Piece& piece, RegexScratch& scratch, PieceSink& words) const;

  std::vector<std::shared_ptr<const Step>> steps_;
  bool leaves_bytes_ = false;
  bool marks_start_ = false;
};

}  // namespace jige::text
