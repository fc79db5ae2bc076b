// Relabellings under which a topology, as described, stays the same: GPUs of one NUMA node swapped,
// NUMA nodes swapped with all that hangs on them. A set of transfers and its image should then run
// at one rate, so one measurement can stand for many; whether it does is for measurements to
// confirm (profiler.h).
//
//   const Symmetry symmetry = find_symmetry(box);
//   symmetry.canonical(set);      // the same for all images of a set
//
// Invariants: permutations are sorted, the identity first; each maps components to components of
// the same kind and rates, links to links, routes to routes. Names, addresses and indices do not
// count. Threads: const functions from several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "topology/topology.h"

namespace jige::profile {

using Permutation = std::vector<int32_t>;  // of components

topology::Transfer image(const Permutation& permutation, const topology::Transfer& transfer);

struct Symmetry {
  std::vector<Permutation> permutations;
  bool complete = true;                 // a group: none was left out
  std::vector<Permutation> generators;  // what extend() was given

  // The least image of the set, sorted.
  std::vector<topology::Transfer> canonical(std::span<const topology::Transfer> set) const;
  bool contains(const Permutation& permutation) const;
  // Adds a permutation and all that follow from it and those already there, `count_max` in all.
  // REQUIRES: made of no_symmetry by extend() alone.
  void extend(const Permutation& permutation, size_t count_max);
};

// The identity alone, which reuses nothing.
Symmetry no_symmetry(const topology::Topology& topology);

// All of them, up to `count_max`; beyond, or for more than 200 components, those found so far.
Symmetry find_symmetry(const topology::Topology& topology, size_t count_max = 2048);

}  // namespace jige::profile
