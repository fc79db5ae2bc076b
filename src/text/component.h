// What the parts of a tokenizer.json have in common: each is an object with a "type", absent parts
// are null, and patterns are {"String": …} or {"Regex": …}.
//
// Threads: values; no shared state.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/pattern_cut.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace jige::text {

inline constexpr size_t kStepsMax = 64;  // of a sequence of components

// Longer texts are refused, before and after every change, with kExhausted.
inline constexpr size_t kTextBytesMax = size_t{1} << 28;

// The "type" of a component. Fails with kCorrupt when there is none.
Result<std::string> component_type(const Json& component, std::string_view where);

// The error for a component Jige does not have.
tl::unexpected<Error> unsupported_component(std::string_view kind, std::string_view type,
                                            std::string_view where);

// A member that must be a list of components ("normalizers", "decoders", …).
Result<const Json*> component_list(const Json& component, const char* field,
                                   std::string_view where);

// What Split and Replace look for: a text or a regular expression.
class Pattern {
 public:
  // Reads the member "pattern". An empty text is refused with kUnsupported.
  static Result<Pattern> from_json(const Json& component, std::string_view where);
  static Pattern literal(std::string text) { return Pattern(std::move(text), std::nullopt); }

  // Hands every match to `found`, a function from Range to Status, leftmost first. REQUIRES: valid
  // UTF-8.
  template <typename Found>
  Status for_each(std::string_view text, RegexScratch& scratch, Found&& found) const {
    Range match;
    if (regex_) {
      Regex::Scan scan(*regex_, text, scratch);
      for (;;) {
        JIGE_TRY(const bool more, scan.next(match));
        if (!more) return {};
        JIGE_DO(found(match));
      }
    }
    for (size_t at = find_text(text, text_); at != text.npos;
         at = find_text(text, text_, match.end)) {
      match = {at, at + text_.size()};
      JIGE_DO(found(match));
    }
    return {};
  }

  // See pattern_cut.h.
  Result<PatternCut> cut(std::string_view text, size_t place, RegexScratch& scratch) const {
    return regex_ ? cut_among_matches(*regex_, text, place, scratch)
                  : cut_among_matches(text_, text, place);
  }
  // Whether it is a text of one character.
  bool is_one_character() const { return !regex_ && text_.size() == utf8_size(text_[0]); }
  // The size of the match at the beginning; nothing where none begins there. REQUIRES: valid UTF-8.
  Result<std::optional<size_t>> match_at_start(std::string_view text, RegexScratch& scratch) const;

  // Whether a match may begin in `left` and end in `right`, which goes on from it.
  bool crosses(std::string_view left, std::string_view right) const;

  // The text with every match replaced; an empty text stays empty.
  Result<std::string> replace_all(std::string_view text, std::string_view replacement,
                                  RegexScratch& scratch) const;

 private:
  Pattern(std::string text, std::optional<Regex> regex)
      : text_(std::move(text)), regex_(std::move(regex)) {}
  std::string text_;
  std::optional<Regex> regex_;
};

}  // namespace jige::text
