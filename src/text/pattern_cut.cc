#include "text/pattern_cut.h"

#include <algorithm>
#include <vector>

#include "text/unicode.h"

namespace jige::text {
namespace {

// How far before a place the matches are looked at twice.
constexpr size_t kLookedAtTwiceBytes = 4096;

}  // namespace

Result<PatternCut> cut_among_matches(const Regex& regex, std::string_view text, size_t place,
                                     RegexScratch& scratch) {
  PatternCut cut;
  if (regex.looks_back()) return cut;
  size_t window = place > kLookedAtTwiceBytes ? place - kLookedAtTwiceBytes : 0;
  while (window > 0 && (static_cast<uint8_t>(text[window]) & 0xC0) == 0x80) --window;
  // The matches that look at nothing behind the window's beginning stand, cut or not.
  size_t known = 0;
  Range match;
  for (Regex::Scan scan(regex, text.substr(0, window), scratch, TextEnd::kOpen);;) {
    JIGE_TRY(const bool more, scan.next(match));
    if (!more) break;
    cut.any = true;
    if (match.begin < match.end) known = match.end;
  }
  const auto start = [&](Regex::Scan& scan) {
    if (known > 0) scan.start_at(known);
  };
  Regex::Scan left(regex, text.substr(0, place), scratch);
  Regex::Scan whole(regex, text, scratch, TextEnd::kOpen);
  start(left);
  start(whole);
  cut.gap = {known, text.size()};
  cut.behind_match = known > 0 && known == place;
  for (;;) {
    JIGE_TRY(const bool more, whole.next(match));
    // What comes next begins behind the match before, wherever that is.
    if (!more && whole.waits()) {
      if (!cut.behind_match) return cut;
      cut.before_match = true;
    }
    cut.any = cut.any || more;
    if (!more || match.begin >= place) break;
    Range alone;
    JIGE_TRY(const bool same, left.next(alone));
    if (!same || alone != match) return cut;
    cut.gap.begin = match.end;
    cut.behind_match = match.end == place;
  }
  Range alone;
  JIGE_TRY(const bool additional, left.next(alone));
  if (additional) return cut;
  if (match.begin >= place) {
    if (match.end == place) return cut;  // empty
    cut.gap.end = match.begin;
    cut.before_match = match.begin == place;
  }
  cut.allowed = true;
  return cut;
}

PatternCut cut_among_matches(std::string_view what, std::string_view text, size_t place) {
  PatternCut cut{.gap = {0, text.size()}};
  if (what.size() > text.size() - place) return cut;
  // No occurrence may lie across the place, not even one that a match before it hides.
  const size_t first = place - std::min(place, what.size() - 1);
  if (find_text(text.substr(0, place + what.size() - 1), what, first) < place) return cut;
  for (size_t from = 0;;) {
    const size_t at = find_text(text, what, from);
    cut.any = cut.any || at != text.npos;
    if (at >= place) {
      cut.gap.end = std::min(at, text.size());
      cut.before_match = at == place;
      break;
    }
    cut.gap.begin = from = at + what.size();
    cut.behind_match = from == place;
  }
  cut.allowed = true;
  return cut;
}

}  // namespace jige::text
