// NodeLimits: which nodes a job may not have, though they have the GPUs that it asks for.
//
//   for good  those it excludes, without a feature it asks for, with too few CPUs or too little
//             memory in all
//   for now   where others have the CPUs or the memory; nodes of a reservation for those who do not
//             name one, all others for those who do; nodes in use for who asks for whole ones
//
// Features are names joined by & or by |; Slurm's other forms (counts, brackets, both signs) cannot
// be judged here. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "slurm/snapshot.h"

namespace jige::slurm {

// CPUs and memory that jobs have on a node, or were promised there.
struct NodeUse {
  int64_t cpus = 0, memory_mb = 0;
};

// Empty where the features can be judged.
std::string why_not_judged(std::string_view features);

bool suits_for_good(const SeenNode& node, const NodeNeeds& needs);
// `promised` is what is not seen in use yet.
bool has_room_now(const SeenNode& node, const NodeNeeds& needs, const NodeUse& promised);
// What the job takes of a node.
NodeUse use_of(const SeenNode& node, const NodeNeeds& needs);

// For people: what limits the choice of nodes; empty where nothing does.
std::string describe(const NodeNeeds& needs);

}  // namespace jige::slurm
