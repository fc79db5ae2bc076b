// Cutting a text at matches, in the five ways of tokenizer files. For "a-b" and matches of "-":
//
//   Removed             a|b
//   Isolated            a|-|b
//   MergedWithPrevious  a-|b
//   MergedWithNext      a|-b
//   Contiguous          like Isolated, but neighbouring matches stay together
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/pieces.h"
#include "text/regex.h"

namespace jige::text {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Reads the member "behavior". Fails with kCorrupt on an unknown name.
Result<SplitBehavior> behavior_from_json(const Json& component, std::string_view where);

struct SplitRule {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  // Treats what lies between matches as the matches.
  bool invert = false;
};

// Appends the non-empty pieces of `piece` to `out`. REQUIRES: `matches` ordered, without overlap.
void split_piece(const Piece& piece, const std::vector<Range>& matches, const SplitRule& rule,
                 std::vector<Piece>& out);

}  // namespace jige::text
