// Roofline: bytes and floating-point operations of forwards, and what was reached of late.
//
// The model of a forward, of the layers that this process holds: all matrices are read once, as
// they are packed (the head's only where logits are wanted; of experts those that are expected when
// every row chooses its own at random); each sequence reads the keys and values that its rows see
// once; operations are those of Block::forward_flops(), as for training. Activations count as
// staying in the processor's caches. Achieved bytes/s beside the machine's memory bandwidth, and
// FLOP/s beside its peak, show how much room is left.
// Threads: values; one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

  // Of the matrices in front of the head, in a forward of so many rows.
  double body_bytes(double rows) const;
  double head_bytes() const { return head_bytes_; }

 private:
  // Layers whose rows see as many keys: all, or those of a window.
  struct Reach {
    double keys_max = 0;
    double flops = 0;     // of one row and one key
    double kv_bytes = 0;  // of one key and its value
  };
  void add_layer(const model::Block& layer, double kv_bytes);

  double body_flops_ = 0;    // of one row, without its keys
  double head_flops_ = 0;    // of one row
  double body_bytes_ = 0;    // without experts
  double expert_bytes_ = 0;  // of all experts
  double unchosen_ = 0;      // the part of them that a row leaves out
  double head_bytes_ = 0;
  std::vector<Reach> reaches_;
  bool whole_texts_ = false;  // tokens see those behind them, too: twice the mean context
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
