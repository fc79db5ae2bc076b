// What the model that a preference run starts from thinks of every pair of answers, computed once
// and kept in a file, so that no second model is in memory and a run that goes on computes nothing
// again.
//
// Layout of OUT/cache/reference-KEY.bin, little-endian: u64 magic "JIGEREFS", u64 key, u64 count of
// training pairs, u64 count of held-out pairs; for each pair, in ascending order, i64 place in its
// corpus (Sequence::begin) and f64 sums of the log-probabilities of the chosen and the rejected
// answer; u64 XXH64 of all before. The key is that of everything the values depend on: data,
// weights, types and how data is cut.
// Threads: values; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/preference.h"

namespace jige::train {

struct ReferencePair {
  int64_t begin = 0;
  PairLogProbs logprobs;

  bool operator==(const ReferencePair&) const = default;
};

struct ReferenceLogProbs {
  std::vector<ReferencePair> training, held_out;  // each in ascending order of `begin`

  bool operator==(const ReferenceLogProbs&) const = default;
};

// Of the pair at `begin`. REQUIRES: it is there.
const PairLogProbs& find_reference(std::span<const ReferencePair> pairs, int64_t begin);

std::string reference_path(const std::string& cache_folder, uint64_t key);

// Fails with kExhausted on a full disk, kIo; an existing file stays then.
Status write_reference(const std::string& path, uint64_t key, const ReferenceLogProbs& reference);

// Fails with kNotFound, kIo, and with kCorrupt where the file is not whole or is another key's.
Result<ReferenceLogProbs> read_reference(const std::string& path, uint64_t key);

}  // namespace jige::train
