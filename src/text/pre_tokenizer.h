// The "pre_tokenizer" of a tokenizer.json: cuts a text into the words that BPE works on.
//
// Known: ByteLevel Split Metaspace Digits Whitespace WhitespaceSplit Punctuation BertPreTokenizer
// CharDelimiterSplit Sequence.
//
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
#include "text/pieces.h"
#include "text/regex.h"

namespace jige::text {

class PreTokenizer {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    // Cuts one piece and appends the parts to `out`; new strings are kept in `pieces`.
    virtual Status apply(const Piece& piece, RegexScratch& scratch, Pieces& pieces,
                         std::vector<Piece>& out) const = 0;
  };

  // `component` may be null: the text stays whole. Fails with kUnsupported naming an unknown type.
  static Result<PreTokenizer> from_json(const Json* component, std::string_view where);

  // Cuts every piece of the list. REQUIRES: valid UTF-8. Fails where a pattern runs away.
  Status apply(Pieces& pieces, RegexScratch& scratch) const;

  // Whether the last step is ByteLevel, so that the words are raw bytes.
  bool leaves_bytes() const { return leaves_bytes_; }

  // The split pattern of GPT-2, which ByteLevel uses.
  static constexpr std::string_view kGpt2Pattern =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
  bool leaves_bytes_ = false;
};

}  // namespace jige::text
