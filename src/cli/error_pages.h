// The errors of ranks that were started here, in memory that their starter reads when they have
// ended.
//
// Threads: each page by the process of its rank, and after that by the starter.
#pragma once

#include <vector>

#include "base/result.h"

namespace jige::cli {

class ErrorPages {
 public:
  // Fails with kExhausted.
  static Result<ErrorPages> make(int count);
  ErrorPages(ErrorPages&& other) noexcept;
  ErrorPages& operator=(ErrorPages&&) = delete;
  ~ErrorPages();

  void put(int rank, const Error& error);
  // Whether the rank has left an error.
  bool has(int rank) const;
  // That error, or what an exit code (128 + n: ended by signal n) says of a rank that left none.
  Error get(int rank, int exit_code) const;

 private:
  struct Page;
  ErrorPages(Page* pages, int count) : pages_(pages), count_(count) {}
  Page* pages_;
  int count_;
};

// The cause among the errors of a group: one that no other rank has reported.
Status first_cause(const std::vector<Error>& errors);

}  // namespace jige::cli
