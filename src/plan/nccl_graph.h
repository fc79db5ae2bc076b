// Graph files of NCCL (NCCL_GRAPH_FILE): which order its rings take, as stock NCCL 2.18 and later
// reads them.
//
//   <graphs version="1">
//     <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="9" speedinter="9"
//            latencyinter="0" typeintra="SYS" typeinter="SYS" samechannels="1">
//       <channel><gpu dev="0x0"/><gpu dev="0x2"/><gpu dev="0x1"/></channel>
//     </graph>
//   </graphs>
//
// Id 0 is the ring, 1 the tree. `dev` is a number in any base up to 2.20 and always hexadecimal
// from 2.21 on, so it is written as 0x… The files name devices of this machine only; NCCL pins
// nothing to ranks, and `rank` is not written. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::plan {

struct NcclVersion {
  int32_t major = 2;
  int32_t minor = 18;
  auto operator<=>(const NcclVersion&) const = default;
};
// "2.21". Fails with kInvalidArgument; below 2.18 with kUnsupported.
Result<NcclVersion> parse_nccl_version(std::string_view text);

inline constexpr int32_t kNcclRing = 4;  // patterns
inline constexpr int32_t kNcclTree = 3;

struct NcclChannel {
  std::vector<int32_t> nets;  // none, or the NIC of entry and that of exit
  std::vector<int32_t> gpus;  // in ring order
  bool operator==(const NcclChannel&) const = default;
};

struct NcclGraph {
  int32_t id = 0;
  int32_t pattern = kNcclRing;
  bool cross_nic = false;
  double speed_intra = 0;  // GB/s of a channel
  double speed_inter = 0;
  double latency_inter = 0;
  std::string type_intra = "SYS";
  std::string type_inter = "SYS";
  bool same_channels = true;
  std::vector<NcclChannel> channels;
  bool operator==(const NcclGraph&) const = default;
};

// Fails with kUnsupported for what the version's parser would refuse: too many channels or devices.
Result<std::string> write_nccl_graphs(const std::vector<NcclGraph>& graphs, NcclVersion version);

// Reads what NCCL dumps and what write_nccl_graphs writes. Fails with kCorrupt, naming the line.
Result<std::vector<NcclGraph>> parse_nccl_graphs(std::string_view text, std::string_view where,
                                                 NcclVersion version);

}  // namespace jige::plan
