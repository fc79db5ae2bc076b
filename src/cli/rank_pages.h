// What ranks that were started here tell their starter, in memory that all share: their errors, to
// be read when they have ended, and whether they are writing a checkpoint, at any time.
//
// Threads: the errors of a page by the process of its rank, and after that by the starter.
#pragma once

#include <atomic>
#include <vector>

#include "base/result.h"

namespace jige::cli {

class RankPages {
 public:
  // Fails with kExhausted.
  static Result<RankPages> make(int count);
  RankPages(RankPages&& other) noexcept;
  RankPages& operator=(RankPages&&) = delete;
  ~RankPages();

  // Set while the rank writes what must not be cut off.
  std::atomic<bool>& writing(int rank) const;

  void put(int rank, const Error& error);
  // Whether the rank has left an error.
  bool has(int rank) const;
  // That error, or what an exit code (128 + n: ended by signal n) says of a rank that left none.
  Error get(int rank, int exit_code) const;

 private:
  struct Page;
  RankPages(Page* pages, int count) : pages_(pages), count_(count) {}
  Page* pages_;
  int count_;
};

// The cause among the errors of a group: one that no other rank has reported.
Status first_cause(const std::vector<Error>& errors);

}  // namespace jige::cli
