// The "normalizer" of a tokenizer.json: changes to the text before it is cut up.
//
// Known: NFC NFD NFKC NFKD Nmt Precompiled Lowercase StripAccents Strip Prepend Replace ByteLevel
// BertNormalizer Sequence.
// Threads: immutable; const members from any thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"

namespace jige::text {

class Normalizer {
 public:
  // One change. REQUIRES of apply: valid UTF-8.
  class Step {
   public:
    virtual ~Step() = default;
    virtual Result<std::string> apply(std::string_view text, RegexScratch& scratch) const = 0;
    // Whether all it does is to put something in front.
    virtual bool prepends() const { return false; }
    // Whether drops_first may be true of some text.
    virtual bool may_drop_first() const { return false; }
    // Whether the first character of the changed text stands for a later one of `text`.
    virtual Result<bool> drops_first(std::string_view, RegexScratch&) const { return false; }
    // Whether the changed text is that of `left` and, as a text that goes on, that of `right`,
    // whatever follows. REQUIRES: both not empty.
    virtual bool cuts(std::string_view left, std::string_view right) const = 0;
  };

  // `component` may be null: no changes. Fails with kUnsupported naming an unknown type.
  static Result<Normalizer> from_json(const Json* component, std::string_view where);

  bool empty() const { return steps_.empty(); }
  // Whether something is put in front of a text.
  bool prepends() const;
  // Whether keeps_start below may be false of some text.
  bool may_drop_first() const;
  struct Normalized {
    std::string text;
    // Whether it begins with what stands for the first character of the given text; only then is it
    // the beginning of the input to a Metaspace that marks the first word alone.
    bool keeps_start = true;
  };
  // The changed text; where it `continues` earlier text, nothing is put in front. REQUIRES: valid
  // UTF-8. Fails with kExhausted when a Prepend or Replace makes the text too long or a pattern
  // runs away.
  Result<Normalized> apply(std::string_view text, RegexScratch& scratch,
                           bool continues = false) const;

  // The changed text of a text in two parts, and where the second begins in it. Nothing where the
  // parts, changed by themselves, are not the changed whole, whatever follows.
  struct Parts {
    std::string text;
    size_t place = 0;
    bool keeps_start = true;
  };
  Result<std::optional<Parts>> cut(std::string_view left, std::string_view right, bool continues,
                                   RegexScratch& scratch) const;

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace jige::text
