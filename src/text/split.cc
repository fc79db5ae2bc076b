#include "text/split.h"

#include <algorithm>

namespace jige::text {
namespace {

struct Part {
  Range range;
  bool is_match;
};

// Matches and the stretches between them, in order, covering the whole text.
std::vector<Part> cover(size_t size, const std::vector<Range>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(matches.size() * 2 + 1);
  size_t from = 0;
  for (const Range& match : matches) {
    if (from < match.begin) parts.push_back({{from, match.begin}, invert});
    parts.push_back({match, !invert});
    from = match.end;
  }
  if (from < size) parts.push_back({{from, size}, invert});
  return parts;
}

// Joins a match to its predecessor in `parts`, unless that is a match itself.
std::vector<Part> merge_with_previous(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool previous = false;
  for (const Part& part : parts) {
    if (part.is_match && !previous && !merged.empty()) {
      Range& last = merged.back().range;
      last = {std::min(last.begin, part.range.begin), std::max(last.end, part.range.end)};
    } else {
      merged.push_back(part);
    }
    previous = part.is_match;
  }
  return merged;
}

std::vector<Part> join_equals(const std::vector<Part>& parts) {
  std::vector<Part> joined;
  bool previous = false;
  for (const Part& part : parts) {
    if (part.is_match == previous && !joined.empty()) {
      joined.back().range.end = part.range.end;
    } else {
      joined.push_back(part);
    }
    previous = part.is_match;
  }
  return joined;
}

}  // namespace

Result<SplitBehavior> behavior_from_json(const Json& component, std::string_view where) {
  JIGE_TRY(const std::string name, get_string_or(component, "behavior", "Isolated", where));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return fail(Code::kCorrupt, "{}: unknown \"behavior\" \"{}\"", where, name);
}

void split_piece(const Piece& piece, const std::vector<Range>& matches, const SplitRule& rule,
                 std::vector<Piece>& out) {
  const auto emit = [&](size_t begin, size_t end) {
    if (begin < end) {
      out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
    }
  };
  const bool isolated = rule.behavior == SplitBehavior::kIsolated;
  if (isolated || rule.behavior == SplitBehavior::kRemoved) {
    const bool keep_matches = isolated || rule.invert;
    const bool keep_between = isolated || !rule.invert;
    size_t from = 0;
    for (const Range& match : matches) {
      if (keep_between) emit(from, match.begin);
      if (keep_matches) emit(match.begin, match.end);
      from = match.end;
    }
    if (keep_between) emit(from, piece.text.size());
    return;
  }
  std::vector<Part> parts = cover(piece.text.size(), matches, rule.invert);
  if (rule.behavior == SplitBehavior::kMergedWithNext) {
    std::reverse(parts.begin(), parts.end());
    parts = merge_with_previous(parts);
    std::reverse(parts.begin(), parts.end());
  } else if (rule.behavior == SplitBehavior::kMergedWithPrevious) {
    parts = merge_with_previous(parts);
  } else {
    parts = join_equals(parts);
  }
  for (const Part& part : parts) emit(part.range.begin, part.range.end);
}

}  // namespace jige::text
