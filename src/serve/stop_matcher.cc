#include "serve/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace jige::serve {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_match)
    : stops_(std::move(stops)), include_match_(include_match) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) return {};
  text_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = text_.find(stop);
    if (found == std::string::npos || found + stop.size() > end) continue;
    if (found + stop.size() == end && stop.size() <= matched_stop_.size()) continue;
    end = found + stop.size();
    matched_stop_ = stop;
  }
  if (end != std::string::npos) {
    matched_ = true;
    text_.resize(end - (include_match_ ? 0 : matched_stop_.size()));
    return std::exchange(text_, {});
  }
  const size_t shown = text_.size() - held_back_bytes();
  std::string out = text_.substr(0, shown);
  text_.erase(0, shown);
  return out;
}

std::string StopMatcher::flush() { return std::exchange(text_, {}); }

size_t StopMatcher::held_back_bytes() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, text_.size()); length > held; --length) {
      if (text_.ends_with(std::string_view(stop).substr(0, length))) {
        held = length;
        break;
      }
    }
  }
  return held;
}

}  // namespace jige::serve
