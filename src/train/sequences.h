// A corpus cut into training sequences, and its held-out part.
//
// A sequence of n inputs reads tokens [begin, begin + n) and learns to predict [begin + 1,
// begin + n + 1). Documents longer than the context C are cut so that every token but a document's
// first is predicted once. Packing::kStream cuts each file as if it were one document.
// A sequence in which nothing is to be learned is left out.
//
// A pair of answers (Corpus::holds_pairs) is one sequence here, so that its halves are never
// parted: n inputs of the chosen document and m of the rejected one behind it, count = n + m; the
// token between the two is no input.
//
// Held out: sequences in groups of kGroupSequences of a document; a group is held out when a hash
// of (seed, document, group) is below the fraction, whatever else the corpus holds. Where the
// fraction asks for some and the hashes give none, the group with the least hash is taken; one
// group always stays for training. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "train/corpus.h"
#include "train/options.h"

namespace jige::train {

inline constexpr int64_t kGroupSequences = 16;

struct Sequence {
  int64_t begin = 0;          // first input in the corpus
  int32_t count = 0;          // inputs
  int32_t learned_count = 0;  // targets that bear a loss, 1 to count

  bool operator==(const Sequence&) const = default;
};

struct SequenceOptions {
  int64_t context = 0;  // C, at least 1
  Packing packing = Packing::kDocuments;
  double held_out_fraction = 0;
  uint64_t seed = 0;
};

struct Sequences {
  std::vector<Sequence> training;
  std::vector<Sequence> held_out;
  int64_t empty_count = 0;  // sequences without anything to learn, left out
};

// Cuts a corpus. Fails with kCorrupt where a document of a pair is longer than the context; with
// kInvalidArgument when nothing is left to train on, saying what the
// corpus has, and as TokenFile::read_mask.
Result<Sequences> cut_sequences(const Corpus& corpus, const SequenceOptions& options);

}  // namespace jige::train
