// StopMatcher: cuts a stream of text at the first stop string, and never lets out text that might
// be the beginning of one.
//
//   StopMatcher matcher({"\nUser:"});
//   matcher.push("Hello\nUs")  -> "Hello"     held back: "\nUs"
//   matcher.push("er: hi")    -> ""          matched()
//
// Where several stop strings occur, the one that is complete first counts; of those that end
// together, the longest. So it does not matter how the text is cut into pieces.
// Threads: one at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jige::serve {

class StopMatcher {
 public:
  // Empty stop strings are passed over. `include_match`: the stop string itself is let out too.
  explicit StopMatcher(std::vector<std::string> stops, bool include_match = false);

  // Takes the next piece and returns what may be shown. After a match everything is dropped.
  std::string push(std::string_view piece);
  // What was held back, at the end of the stream.
  std::string flush();
  bool matched() const { return matched_; }
  // The stop string that was met; empty before.
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  size_t held_back_bytes() const;

  std::vector<std::string> stops_;
  std::string text_;  // not let out yet
  bool include_match_;
  bool matched_ = false;
  std::string matched_stop_;
};

}  // namespace jige::serve
