// A seeded permutation of [0, size) that needs no memory: the order of sequences in an epoch.
//
// A Feistel network of eight rounds, keyed by Philox, permutes the smallest [0, 4^h) that holds
// [0, size); a result outside is put in again until it falls inside (cycle walking, fewer than four
// tries on average). So any place of the order is found in constant time, and resuming needs only
// the place.
// Threads: values.
#pragma once

#include <cstdint>

namespace jige::train {

class Permutation {
 public:
  // REQUIRES: 1 <= size <= 2^62.
  Permutation(uint64_t key, uint64_t size);

  uint64_t size() const { return size_; }
  // The element at `place`. REQUIRES: place < size().
  uint64_t operator()(uint64_t place) const;

 private:
  uint64_t round_trip(uint64_t value) const;

  uint64_t key_;
  uint64_t size_;
  int half_bits_;  // h
};

}  // namespace jige::train
