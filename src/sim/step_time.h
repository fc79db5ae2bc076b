// StepTime: how long an iteration of the serving engine takes, from what is in its batch.
//
//   JIGE_TRY(const StepProfile profile, load_step_profile(path));      // sim/step_profile.h
//   const double one_s = profile.step.seconds(*scheduler.next_batch());
//
// An iteration is cut into forwards as the engine cuts it (plan/forward_cut.h). A forward takes
//
//   base + rows(T) + (S > 0 ? sampling : 0) + sampled(S) + keys(N) + sequence * Q + kv_token * K
//        + pair * P
//
// for T rows, S of which are sampled from, of Q sequences with K keys, N of them of sequences with
// one row, and P pairs of a row and a key that it sees. rows(T), sampled(S) and keys(N) are
// piecewise linear: products of few rows are bound by memory and those of many by arithmetic, and a
// cache of keys is read from the processor's caches while it is small. No term is negative, so that
// more work never takes less time. That is the usual time; single forwards differ by `noise`.
// Threads: values.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/forward_cut.h"
#include "plan/serve_scheduler.h"
#include "sim/step_noise.h"

namespace jige::sim {

// What a forward's time depends on. Fractions are means over many.
struct StepFeatures {
  double rows = 0;
  double sampled_rows = 0;
  double sequences = 0;
  double kv_tokens = 0;    // keys in the cache that a sequence reads, with those of its own rows
  double decode_keys = 0;  // of these, those of sequences with one row
  double pairs = 0;        // a row sees all keys in front of it and its own

  // Adds rows of one sequence behind `context` others.
  void add(int64_t context, int64_t row_count, int64_t sample_rows);
};

// What is behind the segment before it, up to `end`, takes unit_s each.
struct StepSegment {
  double end = 0;
  double unit_s = 0;
};

struct StepTime {
  double base_s = 0;        // of a forward
  double token_s = 0;       // of a row, behind the last segment
  double kv_token_s = 0;    // of a key in the cache
  double decode_key_s = 0;  // more for one of a sequence with one row, behind the last segment
  double pair_s = 0;
  double sequence_s = 0;
  double sampling_s = 0;                       // of a forward that is sampled from
  double sampled_row_s = 0;                    // behind the last segment
  std::vector<StepSegment> row_segments = {};  // ascending; without them a row takes token_s
  std::vector<StepSegment> sampled_row_segments = {};
  std::vector<StepSegment> decode_key_segments = {};
  plan::ForwardLimits limits = {};  // of the model that was measured
  StepNoise noise = {};

  double rows_seconds(double rows) const;
  // Of an iteration that is one forward: usually.
  double forward_seconds(const StepFeatures& features) const;
  double seconds(const plan::Batch& batch) const;
  // One such iteration, with noise that is drawn, and when each item's last rows are done, which is
  // when its tokens are told: at the end of their forward.
  double draw_seconds(const plan::Batch& batch, std::vector<double>& item_end_s, Rng& rng) const;
  // Of an iteration of which only the sums are known: forwards are as full as they can be and share
  // the rest evenly. Exact where one forward holds it all.
  double seconds(const StepFeatures& sums) const;
  // The mean of many of these, with their noise.
  double mean_seconds(const StepFeatures& sums) const;

 private:
  double forward_count(const StepFeatures& sums) const;
  template <typename SecondsOf>
  double cut_seconds(const plan::Batch& batch, std::vector<double>& item_end_s,
                     const SecondsOf& seconds_of) const;
};

}  // namespace jige::sim
