// Where a job goes, without regard to what others do on the network:
//
//   pack      the fewest nodes; among those that hold it alone the one with the least room
//   span      the fewest leaves, there the fewest nodes
//   best-fit  one node if one has room, else the smallest gaps first, so that empty nodes stay
//   empty random    nodes in random order
//
// All may split a job over any free GPUs, so a job fits as soon as enough are free; one with a
// fixed number of nodes takes equal shares of so many; nobody goes where he is barred
// (Job::barred). Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "cluster/cluster_state.h"

namespace jige::cluster {

enum class PlacementKind : uint8_t { kPack, kSpan, kBestFit, kRandom };
inline constexpr int kPlacementKindCount = 4;
std::string_view placement_name(PlacementKind kind);

// REQUIRES: free.fits(job); `rng` for kRandom.
Placement place_blindly(PlacementKind kind, const Job& job, const FreeGpus& free,
                        const ClusterSpec& spec, Rng& rng);

// Placements worth a look for a scheduler that knows the network, at most `count_max`, each once:
// on one node; inside each leaf, fewest nodes or quiet nodes first; over leaves likewise; gaps.
// REQUIRES: the job fits.
std::vector<Placement> candidate_placements(const ClusterState& cluster, JobId id,
                                            size_t count_max);

}  // namespace jige::cluster
