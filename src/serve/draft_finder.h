// DraftFinder: guesses how a text goes on from how it went on before (prompt lookup, Saxena 2023).
//
//   DraftFinder finder(draft_max);
//   finder.append(prompt);
//   for (;;) {
//     const auto draft = finder.draft(limit);   // run the last token and these at once
//     …
//     finder.judge(draft.size(), accepted);
//     finder.append(tokens that came);
//   }
//
// A draft is what followed the latest earlier place that ends with the same tokens, the longest of
// kMatchMin to kMatchMax. How long drafts get follows how they fare: twice as long after one that
// was right to its end, shorter after one that was not. After a wrong one, or where of late less
// than kRateMin of the drafted tokens were right, there are none for a while, twice as long each
// time, up to kPauseMax tokens: a drafted token costs up to half of a token (in models so small
// that their weights stay in caches), so a text that does not repeat itself must pay for few.
// Cost: three table entries a token, some 100 bytes. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace jige::serve {

class DraftFinder {
 public:
  static constexpr size_t kMatchMin = 2, kMatchMax = 4;
  static constexpr int64_t kPauseMax = 64;
  static constexpr double kRateMin = 0.6;

  // Drafts have at most `draft_max` tokens; 0: there are none, and nothing is kept.
  explicit DraftFinder(int64_t draft_max);

  void append(std::span<const int32_t> tokens);
  // The tokens that may come next, at most `limit`, or none. Valid until append().
  std::span<const int32_t> draft(int64_t limit) const;
  // How the last draft fared. REQUIRES: 0 <= accepted <= drafted.
  void judge(size_t drafted, size_t accepted);

 private:
  void index_end();

  int64_t draft_max_;
  int64_t length_;          // of the next draft at most
  double rate_ = 1;         // of drafted tokens that were right, of late
  int64_t pause_ = 0;       // tokens before the next draft
  int64_t next_pause_ = 4;  // after the next wrong one
  std::vector<int32_t> tokens_;
  // For each length: where what follows the latest such tokens begins, and the one before it, since
  // the latest is the end itself. Keys are hashes: a wrong place is a bad draft, not a wrong
  // answer.
  struct Places {
    int32_t latest = -1, earlier = -1;
  };
  std::unordered_map<uint64_t, Places> places_[kMatchMax - kMatchMin + 1];
};

}  // namespace jige::serve
