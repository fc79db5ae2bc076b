// Roofline: bytes and floating-point operations of forwards, and what was reached of late.
//
// The model of a forward: all matrices are read once (the head's only where logits are wanted);
// each sequence reads the keys and values that its rows see once; a matrix of N parameters takes 2
// N operations a row. Activations count as staying in the processor's caches. Achieved bytes/s
// beside the machine's memory bandwidth, and FLOP/s beside its peak, show how much room is left.
// Threads: values; one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "model/architecture.h"
#include "model/memory_plan.h"
#include "ops/attention.h"
#include "serve/engine_status.h"

namespace jige::serve {

class RooflineModel {
 public:
  RooflineModel(const model::Architecture& architecture, const model::InferenceSizes& sizes);

  // Adds one forward's bytes, operations and tokens.
  void add_forward(RooflineSample& sample, std::span<const ops::SequenceSpan> sequences,
                   int64_t logit_rows) const;

  double body_bytes() const { return body_bytes_; }  // of the matrices in front of the head
  double head_bytes() const { return head_bytes_; }

 private:
  double body_parameters_ = 0;
  double head_parameters_ = 0;
  double body_bytes_ = 0;
  double head_bytes_ = 0;
  double kv_bytes_per_token_ = 0;
  double attention_flops_ = 0;  // of one row and one key in all layers
};

// Sums in which what lies t busy seconds back has the weight exp(-t / 10).
class RecentWork {
 public:
  void add(const RooflineSample& sample, int64_t requests_finished);
  const RooflineSample& sum() const { return sum_; }
  // Requests finished in a busy second; 0 before the first.
  double requests_per_s() const { return sum_.seconds > 0 ? finished_ / sum_.seconds : 0; }

 private:
  RooflineSample sum_;
  double tokens_ = 0;
  double finished_ = 0;
};

}  // namespace jige::serve
