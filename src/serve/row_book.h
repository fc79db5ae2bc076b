// RowBook: gives rows their ids, by what they were made of, and keeps those that were used last.
//
//   if (GivenRowsRef known = book.find(content)) return known;     // an image that was read before
//   JIGE_TRY(GivenRowsRef rows, book.add(content, {.token = …, .count = …, .values = …}));
//
// The same content has the same ids as long as the book keeps its rows; an id has one content as
// long as epoch() is one. When ids run out the book begins anew, in the next epoch: who compares
// prompts by their ids must tell epochs apart.
// Invariant: the rows that are alive, in the book or with those who were given them, take at most
// bytes_max. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "serve/given_rows.h"

namespace jige::serve {

class RowBook {
 public:
  struct Options {
    int32_t first_id = 0;  // behind the vocabulary
    int32_t id_end = INT32_MAX;
    int64_t bytes_max = int64_t{512} << 20;
    bool mutual = false;  // rows of a content see one another
  };
  using Content = std::array<uint8_t, 32>;  // a cryptographic digest

  explicit RowBook(const Options& options) : options_(options), next_id_(options.first_id) {}

  // The rows of a content, or null where they are not kept.
  GivenRowsRef find(const Content& content);
  // Takes rows of a content, and gives them ids; where it has some, those stay. Fails with
  // kExhausted where rows that others use leave no room, and kInvalidArgument on more of them than
  // there are ids.
  Result<GivenRowsRef> add(const Content& content, GivenRows rows);
  uint64_t epoch() const;
  int64_t bytes() const { return *bytes_; }

 private:
  struct Known {
    Content content;
    GivenRowsRef rows;
  };
  using Order = std::list<Known>;

  GivenRowsRef found(const Content& content);
  void forget_oldest();

  const Options options_;
  mutable std::mutex mutex_;
  int64_t next_id_;
  uint64_t epoch_ = 0;
  Order order_;  // used last first
  std::map<Content, Order::iterator> places_;
  // Of rows that are alive; they may outlive the book.
  std::shared_ptr<std::atomic<int64_t>> bytes_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace jige::serve
