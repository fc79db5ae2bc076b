// Where a text may be cut in two without changing what a pattern matches in it.
//
// A place is such a one where no match lies across it, where the left part alone has the matches
// that the whole has up to there, and where the pattern does not look back, so that the right part
// has the others. The text given may go on: what stands behind its end changes none of this.
//
// Threads: pure functions; a RegexScratch belongs to one thread at a time.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/regex.h"

namespace jige::text {

struct PatternCut {
  bool allowed = false;
  bool any = false;           // whether something matched at all
  bool behind_match = false;  // a match ends at the place
  bool before_match = false;  // a match begins there, or may do so
  Range gap = {};             // what lies between the matches around the place
};

// REQUIRES: a character begins at `place`, behind another; `text` is valid UTF-8. Fails where the
// pattern runs away.
Result<PatternCut> cut_among_matches(const Regex& regex, std::string_view text, size_t place,
                                     RegexScratch& scratch);
// The same for the occurrences of `what`, which is not empty.
PatternCut cut_among_matches(std::string_view what, std::string_view text, size_t place);

}  // namespace jige::text
