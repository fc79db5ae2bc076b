// Which slots hold copies of recurrent states as they stood behind whole blocks of some prompt.
//
// A slot is free or named by the hash of the tokens that its state stands behind, the hash by which
// the pool of blocks knows them (kv_block_pool.h). The slots are [first_slot, first_slot + count).
// Who copies into and out of them, and when, is the scheduler's concern (serve_scheduler.h).
//
// Invariant: every slot is free or has one name, and no two have the same.
// Threads: none; owned by the scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/kv_block_pool.h"

namespace jige::plan {

class KeptStates {
 public:
  KeptStates(int32_t first_slot, int32_t count);

  int32_t capacity() const { return capacity_; }
  int32_t count() const { return static_cast<int32_t>(by_prefix_.size()); }
  // The slot of the state behind `prefix`, if it is kept.
  std::optional<int32_t> find(const PrefixHash& prefix) const;
  // The same for a state that is about to be copied from. REQUIRES: find(prefix).
  int32_t use(const PrefixHash& prefix);
  // A slot for the state behind `prefix`: a free one, or that of the state used least recently,
  // which is forgotten. REQUIRES: capacity() > 0 and !find(prefix).
  int32_t keep(const PrefixHash& prefix);
  // No effect on what is not there.
  void forget(const PrefixHash& prefix);
  void forget_all();

  void check_invariants() const;

 private:
  struct Kept {
    int32_t slot = -1;
    int64_t used = 0;  // when last, in uses and keeps of any
  };

  const int32_t first_slot_;
  const int32_t capacity_;
  std::map<PrefixHash, Kept> by_prefix_;
  std::vector<int32_t> free_;
  int64_t now_ = 0;
};

}  // namespace jige::plan
