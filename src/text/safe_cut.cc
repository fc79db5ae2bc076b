// Where a long text may be cut: at a place that every part of the tokenizer allows.
//
// Added tokens: none touches the place, and no white space before it could belong to one.
// Normalizer, pre-tokenizer and model say by themselves whether they allow it (Normalizer::cut,
// PreTokenizer::cut, BpeModel::cuts, SentencePieceModel::cuts; UnigramModel never does, whose sums
// go through a whole word); a border between two words of the pre-tokenizer needs no leave of the
// model. All of them look at no more of the text than stands whatever follows it.
#include <algorithm>
#include <array>

#include "text/tokenizer_core.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

// How far before the wanted place is looked.
constexpr size_t kWindowBytes = size_t{64} << 10;
// What is left at the end, at least, as what follows may change it.
constexpr size_t kTailBytes = 1024;

char32_t character_before(std::string_view text, size_t place) {
  return decode_utf8(text.substr(last_character(text.substr(0, place)))).code_point;
}

// The text without its end, in which a token may begin of which more follows, up to a place that
// no token touches, nor white space that one may take along.
std::string_view without_begun_token(std::string_view text, const TokenTrie& tokens) {
  size_t end = text.size() - std::min(text.size(), tokens.longest_bytes());
  while (end > 0 && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  while (end > 0 && (is_white_space(character_before(text, end)) || tokens.touches(text, end))) {
    end = last_character(text.substr(0, end));
  }
  return text.substr(0, end);
}

// The kinds of places that are tried, the likeliest first, and how many of each: every one that is
// tried costs a pass over the text.
struct Attempt {
  bool (*fits)(char32_t before, char32_t behind);
  int count_max;
};
constexpr std::array kAttempts = {
    Attempt{[](char32_t before, char32_t behind) { return is_word(before) && behind == ' '; }, 4},
    Attempt{[](char32_t before, char32_t behind) { return is_word(before) && behind == '\n'; }, 4},
    Attempt{[](char32_t before, char32_t behind) { return is_word(before) && !is_word(behind); },
            4},
    Attempt{[](char32_t, char32_t) { return true; }, 8},
};

}  // namespace

class TokenizerCore::CutSearch {
 public:
  CutSearch(const TokenizerParts& parts, std::string_view text, bool continues, Scratch& scratch)
      : parts_(parts), text_(text), continues_(continues), scratch_(scratch) {}

  Result<std::optional<size_t>> find(size_t wanted) {
    JIGE_TRY(const std::optional<size_t> end, find_end());
    if (!end) return std::nullopt;
    text_ = text_.substr(0, *end);
    scratch_.raw.clear();
    parts_.added.split_raw(text_, {.allow_special = false}, scratch_.raw);
    return search(kAttempts, std::min(wanted, *end - 1), [&](size_t place) { return cuts(place); });
  }

 private:
  // The last place of the first kind at or before `from` that `accept` takes.
  template <typename Accept>
  Result<std::optional<size_t>> search(std::span<const Attempt> attempts, size_t from,
                                       Accept&& accept) const {
    const size_t first = std::max<size_t>(from - std::min(from, kWindowBytes), 1);
    for (const Attempt& attempt : attempts) {
      int left = attempt.count_max;
      for (size_t place = from; place >= first && left > 0; --place) {
        if ((static_cast<uint8_t>(text_[place]) & 0xC0) == 0x80) continue;
        const char32_t before = character_before(text_, place);
        const char32_t behind = decode_utf8(text_.substr(place)).code_point;
        if (is_white_space(before)) continue;
        if (!attempt.fits(before, behind) || parts_.added.raw().touches(text_, place)) continue;
        --left;
        JIGE_TRY(const bool accepted, accept(place));
        if (accepted) return place;
      }
    }
    return std::nullopt;
  }

  // Where the part of the text ends whose normalized form and added tokens stand whatever follows.
  Result<std::optional<size_t>> find_end() const {
    const size_t tail = kTailBytes + parts_.added.raw().longest_bytes();
    if (text_.size() <= tail) return std::nullopt;
    return search(std::span(kAttempts).last(1), text_.size() - tail,
                  [&](size_t place) -> Result<bool> {
                    if (parts_.normalizer.empty()) return true;
                    JIGE_TRY(const auto changed,
                             parts_.normalizer.cut(text_.substr(0, place), text_.substr(place),
                                                   continues_, scratch_.regex));
                    return changed.has_value();
                  });
  }

  Result<bool> cuts(size_t place) const {
    const auto section =
        std::find_if(scratch_.raw.begin(), scratch_.raw.end(),
                     [&](const Section& one) { return one.begin < place && place < one.end; });
    if (section == scratch_.raw.end() || section->id >= 0) return false;
    const std::string_view left = text_.substr(section->begin, place - section->begin);
    const std::string_view right = text_.substr(place, section->end - place);
    if (parts_.normalizer.empty()) {
      return cuts_normalized(text_.substr(section->begin, section->end - section->begin),
                             left.size(),
                             section->begin == 0 ? first_start() : PieceStart::kInside);
    }
    JIGE_TRY(const auto changed,
             parts_.normalizer.cut(left, right, continues_ && section->begin == 0, scratch_.regex));
    if (!changed) return false;
    const bool begins = section->begin == 0 && (continues_ || changed->keeps_start);
    return cuts_normalized(changed->text, changed->place,
                           begins ? first_start() : PieceStart::kInside);
  }

  PieceStart first_start() const {
    return continues_ ? PieceStart::kContinuation : PieceStart::kInput;
  }

  // `start`: how the text begins.
  Result<bool> cuts_normalized(std::string_view text, size_t place, PieceStart start) const {
    const TokenTrie& tokens = parts_.added.normalized();
    if (tokens.touches(text, place)) return false;
    if (!tokens.empty()) text = without_begun_token(text, tokens);
    if (place >= text.size()) return false;
    if (is_white_space(character_before(text, place))) return false;
    scratch_.normalized.clear();
    parts_.added.split_normalized(text, false, scratch_.normalized);
    const auto part =
        std::find_if(scratch_.normalized.begin(), scratch_.normalized.end(),
                     [&](const Section& one) { return one.begin < place && place < one.end; });
    if (part == scratch_.normalized.end() || part->id >= 0) return false;
    CutPlace at{.text = text.substr(part->begin, part->end - part->begin),
                .place = place - part->begin,
                .start = part->begin == 0 ? start : PieceStart::kInside};
    if (const auto* model = std::get_if<SentencePieceModel>(&parts_.model)) {
      return model->cuts(at.text, at.place);
    }
    JIGE_TRY(const PreTokenizer::Cut cut, parts_.pre_tokenizer.cut(at, scratch_.regex));
    if (cut != PreTokenizer::Cut::kInsidePart) return cut == PreTokenizer::Cut::kBetweenParts;
    const auto* bpe = std::get_if<BpeModel>(&parts_.model);
    return bpe && bpe->cuts(at.text, at.place);
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  const bool continues_;
  Scratch& scratch_;
};

std::optional<size_t> TokenizerCore::safe_cut(std::string_view text, size_t wanted,
                                              bool continues) const {
  std::unique_ptr<Scratch> scratch = borrow();
  const auto place = CutSearch(parts_, text, continues, *scratch).find(wanted);
  give_back(std::move(scratch));
  // A text on which a pattern runs away cannot be encoded either, which tells why.
  return place ? *place : std::nullopt;
}

}  // namespace jige::text
