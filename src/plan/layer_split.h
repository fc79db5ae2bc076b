// How many of a model's layers each of several machines holds.
//
// Layers stay in their order, so a split is a list of counts. Of those that keep every machine
// within its memory, the one whose busiest machine has least to read for its speed:
//   minimise max over machines of ((bytes of its layers + beside_bytes) / its speed)
// which is the time of a stage where machines work at once, on the pieces of a prompt or on several
// batches. Ties go to fewer bytes over the network: layers as far to the front as possible.
//
//   JIGE_TRY(const std::vector<int64_t> counts, split_layers(layer_bytes, machines));
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::plan {

struct LayerMachine {
  std::string name;          // for errors
  int64_t room_bytes = 0;    // for layers: their weights, caches and states
  double speed = 1;          // relative to the others', > 0
  int64_t beside_bytes = 0;  // that it reads in each stage beside its layers
  // Of the layers there, where they take other room than given for all; empty: as given.
  std::span<const int64_t> layer_bytes = {};
};

// Layers of each machine, which may be none. Takes machines * layers^2 steps. Fails with kExhausted
// where no split fits, saying what is there and what is missing. REQUIRES: there are machines, and
// each knows of as many layers.
Result<std::vector<int64_t>> split_layers(std::span<const int64_t> layer_bytes,
                                          std::span<const LayerMachine> machines);

}  // namespace jige::plan
