// PrefixIndex: which beginnings of prompts somebody has seen lately, in bounded memory.
//
//   PrefixIndex known(65536);
//   known.touch(chain);                          // chain[i] names the first i + 1 blocks
//   const size_t blocks = known.match(other);    // of `other`, from its beginning
//
// A beginning of whole blocks is named by one hash, which covers all blocks of it, so a set of
// hashes is a tree of beginnings. Least recently touched ones are dropped, leaves before what they
// grow from: touching a chain touches its end first and its beginning last.
//
// Invariants: (1) what is known of a touched chain is a beginning of it: with a hash all before it
//             in its chain are there too. So a match is found by bisection.
//             (2) size() <= capacity(). Of a longer chain the beginning is kept.
// It is approximate: two beginnings with one hash are taken for one.
// Threads: none; one caller. Memory: some 80 bytes a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

namespace jige::plan {

class PrefixIndex {
 public:
  // REQUIRES: capacity > 0.
  explicit PrefixIndex(size_t capacity);

  void touch(std::span<const uint64_t> chain);
  // How many blocks of the chain are known, from its beginning.
  size_t match(std::span<const uint64_t> chain) const;
  void clear();

  bool contains(uint64_t hash) const { return places_.contains(hash); }
  size_t size() const { return places_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  size_t capacity_;
  std::list<uint64_t> order_;  // least recently touched first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace jige::plan
