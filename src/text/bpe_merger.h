// The learning half of BPE training: from counted words to merges.
//
// Words are sequences of symbols. Each step takes the most frequent pair of neighbouring symbols
// (on a tie the one with the smaller ids), replaces it everywhere by a new symbol, and corrects the
// counts of the pairs beside each replacement. A heap holds pairs by a count that may be out of
// date; it is checked when a pair comes to the top.
//
// Invariant: count(pair) equals the number of its places over all words, weighted by word counts.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/hash.h"

namespace jige::text {

class BpeMerger {
 public:
  struct Pair {
    int32_t left;
    int32_t right;
  };

  // Symbols 0..255 are the bytes, in the order of their byte-level characters.
  BpeMerger();

  // Adds a word of raw bytes that occurs `count` times. REQUIRES: before the first merge.
  void add_word(std::string_view bytes, int64_t count);
  // Counts all pairs. REQUIRES: called once, after the words.
  void count_pairs();

  // Merges the most frequent pair that occurs at least `count_min` times. False when there is none.
  bool merge_next(int64_t count_min);

  // The byte-level spelling of every symbol, and the merged pairs, in order.
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Pair>& merges() const { return merges_; }

 private:
  struct Word {
    size_t begin;
    uint32_t size;
    int64_t count;
  };
  struct PairState {
    Pair pair;
    int64_t count = 0;
    std::vector<uint32_t> words;  // every word that has the pair, some that had it
  };
  struct Queued {
    int64_t count;
    Pair pair;
    uint32_t index;
    bool operator<(const Queued& other) const;  // for a heap with the best on top
  };

  PairState& state(int32_t left, int32_t right);
  void change(int32_t left, int32_t right, int64_t by, uint32_t word);
  void queue(uint32_t index);
  bool pop_best(int64_t count_min, uint32_t& index);
  int32_t symbol_of(const Pair& pair);
  void merge_in_word(uint32_t word, const Pair& pair, int32_t merged);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> symbol_ids_;
  std::vector<int32_t> byte_symbols_;
  std::vector<Pair> merges_;
  std::vector<int32_t> symbols_;  // of all words, one after the other
  std::vector<Word> words_;
  FlatMap<uint32_t> pair_index_;
  std::vector<PairState> pairs_;
  std::vector<Queued> heap_;
  std::vector<uint32_t> grown_;  // pairs whose count went up in the current merge
};

}  // namespace jige::text
