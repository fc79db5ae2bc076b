// ClusterSpec: nodes with equal GPUs behind leaf switches, joined by a spine.
//
//   JIGE_TRY(const ClusterSpec spec, parse_cluster("16x8x8@100/2", "--cluster"));
//
// Links are full duplex. Collectives send and receive alike, so a network card is one link, and so
// are all uplinks of a leaf together when flows split evenly over the spine (kSplit): for equal
// spines that is exact. With kHash each crossing of a ring takes one spine by a seeded hash, and
// every leaf has an up and a down link to every spine.
//
//   links:  [0, nodes)  network cards     then  leaves * (1 or 2 * spines)  uplinks
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::cluster {

enum class Ecmp : uint8_t { kSplit, kHash };

struct ClusterSpec {
  int32_t leaf_count = 1;
  int32_t nodes_per_leaf = 4;
  int32_t gpus_per_node = 8;
  double nic_bytes_per_s = 5e9;
  double oversubscription = 1;  // bandwidth of a leaf's nodes over that of its uplinks
  int32_t spine_count = 1;
  Ecmp ecmp = Ecmp::kSplit;
  uint64_t seed = 1;  // of the hash

  int32_t node_count() const { return leaf_count * nodes_per_leaf; }
  int32_t gpu_count() const { return node_count() * gpus_per_node; }
  int32_t leaf_of(int32_t node) const { return node / nodes_per_leaf; }

  int32_t link_count() const { return node_count() + leaf_count * links_per_leaf(); }
  int32_t links_per_leaf() const { return ecmp == Ecmp::kSplit ? 1 : 2 * spine_count; }
  int32_t uplink(int32_t leaf) const { return node_count() + leaf * links_per_leaf(); }
  int32_t up(int32_t leaf, int32_t spine) const { return uplink(leaf) + 2 * spine; }
  int32_t down(int32_t leaf, int32_t spine) const { return uplink(leaf) + 2 * spine + 1; }
  double uplink_bytes_per_s() const {  // of all spines
    return nodes_per_leaf * nic_bytes_per_s / oversubscription;
  }
  // Bytes a second, by link.
  std::vector<double> capacities() const;
};

// Reads "LEAVESxNODESxGPUS[@GBIT][/OVERSUBSCRIPTION]" (a leaf's nodes, a node's GPUs, the card's
// gigabits a second), "deepshare" (1x4x8@40, the four nodes of the ICPADS'23 paper) and
// "fat-tree:K" (k-ary, K even: its edge switches as leaves, without oversubscription). Fails with
// kInvalidArgument, naming `flag`, the text and the forms.
Result<ClusterSpec> parse_cluster(std::string_view text, std::string_view flag);

// "16 leaves x 8 nodes x 8 GPUs, 100 Gbit/s, uplinks 2:1".
std::string describe(const ClusterSpec& spec);

}  // namespace jige::cluster
