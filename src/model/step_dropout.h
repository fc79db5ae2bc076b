// What a training step drops, and by which masks.
//
// Single numbers, of the embedding and of each layer's two outputs: every number by itself, by the
// step's key and its token's place in the step (ops/dropout.h), or, with `pooled`, by the mask of
// the token's subnetwork, which all of that subnetwork's tokens share.
// Blocks of neighbouring columns of the hidden width of feed-forward layers: of B blocks
// round(block_rate · B) are left out, the same for all tokens of a subnetwork, and what stays is
// multiplied by B over those that stay (ops/kept_linear.h: what is left out is not computed).
//
// A subnetwork is a key: its masks are functions of it and the site, so one that comes again later
// in the run is the same one. The sequences of a step are its subnetworks' in turn, by the place
// of their first token in the step: with n tokens and M subnetworks, ⌊place · M / n⌋. So neither
// packing, micro-batches, devices nor ranks decide whose a sequence is, and the rows of each
// stand one behind the other.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/dropout.h"
#include "ops/kept_linear.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::model {

struct Batch;

struct StepDropout {
  double rate = 0;                     // of single numbers, in [0, 1); 0: off
  double adapter_rate = 0;             // of those that the model's own adapter reads (projection.h)
  uint64_t key = 0;                    // of the run and its step
  int64_t token_begin = 0;             // of the batch's first row, in the step
  int64_t token_count = 0;             // of the step
  std::vector<uint64_t> members = {};  // keys of the step's subnetworks, in their order
  bool pooled = false;                 // single numbers go by subnetwork, too
  double block_rate = 0;               // of blocks, in [0, 1); 0: off
  int64_t block_size = 64;             // a multiple of ops::kKeptStep
};

// That of what adapters read: every number by itself.
ops::Dropout adapter_dropout(const StepDropout& step);

// How many blocks of a hidden width stay. REQUIRES: the size of a block divides the width.
int64_t kept_block_count(double block_rate, int64_t block_size, int64_t hidden_size);

// dst = src with single numbers dropped at a site, as ops::dropout; with rate 0 it converts.
void drop(Stream& stream, const TensorView& dst, const TensorView& src, const Batch& batch,
          uint64_t site);

// The columns of a hidden width that the batch's rows keep at a site; none where blocks are not
// dropped. REQUIRES: at least one block stays, and members where blocks are dropped.
std::optional<ops::KeptColumns> kept_columns(const Batch& batch, uint64_t site,
                                             int64_t hidden_size);

}  // namespace jige::model
