#include "text/split.h"

#include <algorithm>

namespace jige::text {
namespace {

// Joins a match to its predecessor in `parts`, unless that is a match itself.
template <typename Part>
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

template <typename Part>
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

Status Splitter::emit(size_t begin, size_t end) {
  if (begin >= end) return {};
  return sink_.take(piece_.part(begin, end));
}

Status Splitter::part(size_t begin, size_t end, bool is_match) {
  if (is_match == rule_.invert && rule_.behavior == SplitBehavior::kRemoved)
    return emit(begin, end);
  if (rule_.behavior == SplitBehavior::kRemoved) return {};
  if (rule_.behavior == SplitBehavior::kIsolated) return emit(begin, end);
  if (begin < end || is_match) parts_.push_back({{begin, end}, is_match != rule_.invert});
  return {};
}

Status Splitter::match(const Range& range) {
  JIGE_DO(part(done_, range.begin, false));
  done_ = range.end;
  return part(range.begin, range.end, true);
}

Status Splitter::finish() {
  JIGE_DO(part(done_, piece_.text.size(), false));
  done_ = piece_.text.size();
  if (rule_.behavior == SplitBehavior::kMergedWithNext) {
    std::reverse(parts_.begin(), parts_.end());
    parts_ = merge_with_previous(parts_);
    std::reverse(parts_.begin(), parts_.end());
  } else if (rule_.behavior == SplitBehavior::kMergedWithPrevious) {
    parts_ = merge_with_previous(parts_);
  } else if (rule_.behavior == SplitBehavior::kContiguous) {
    parts_ = join_equals(parts_);
  }
  for (const Part& one : parts_) JIGE_DO(emit(one.range.begin, one.range.end));
  return {};
}

}  // namespace jige::text
