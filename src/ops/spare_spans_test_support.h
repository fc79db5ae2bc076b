// Sequences that keep their state behind some of their rows in a second row of the states.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace jige::ops::test {

// Of whole sequences, their first `context` rows; or, where `begin` is `context`, what comes behind
// these: with `spare` all of it, with the state behind the first `kept` in the row in front of
// their own, or else only these.
inline std::vector<SequenceSpan> spans_behind(std::vector<SequenceSpan> sequences, int32_t begin,
                                              int32_t context, int32_t kept, bool spare) {
  for (SequenceSpan& sequence : sequences) {
    sequence.row_begin += begin;
    sequence.context_count = begin;
    if (begin == 0) {
      sequence.row_count = context;
    } else if (spare) {
      sequence.row_count -= context;
      sequence.spare = sequence.state - 1;
      sequence.spare_rows = kept;
    } else {
      sequence.row_count = kept;
    }
  }
  return sequences;
}

}  // namespace jige::ops::test
