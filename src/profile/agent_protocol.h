// What is said between a profiler and the agents on the hosts, and between two agents.
//
// A frame is the four bytes "JGL1", the length of what follows (4 bytes, little-endian, at most
// 64 KiB), and one JSON object. The first frame of a connection says hello, with the version, what
// the connection is for, and the token; the answer is a welcome, or an error upon which the
// connection ends.
//
//   control  > {"type":"hello","version":3,"role":"control","token":"…"}
//            < {"type":"welcome","version":3,"kernel":"6.1.0","congestion":["reno","bbr"]}
//            > {"type":"clock"}                        < {"type":"clock","now_ns":…}
//            > {"type":"open","flow":3,"address":"10.0.0.2","port":7431,"congestion":"bbr",
//               "timeout_ms":5000}                     < {"type":"opened","flow":3}
//            > {"type":"run","flows":[3],"bytes":[4194304],"start_ns":…,"timeout_ms":…}
//            < {"type":"ran","times":[[begin_ns,end_ns]],"processors":[idle,all]}
//              with the ticks of the host's processors meanwhile, where they are known
//            > {"type":"listen","address":"10.0.0.1"}        < {"type":"listening","port":40001}
//            > {"type":"collect","rank":1,"rings":[{"order":[0,2,1,3],"weight":1}],
//               "address":"10.0.0.1","port":40001,"own":"10.0.0.2","congestion":"bbr",
//               "bytes":8388608,"repeats":3,"timeout_ms":…}
//              with "trees":[2,0,1,3], ranks by place, by double trees instead of along the rings;
//              with "rounds":[[1,0,3,2],…], to whom each rank sends, an all-to-all
//            < {"type":"collected","times_ns":[…]}           of an operation, as this rank saw it
//   data     > {"type":"hello","version":3,"role":"data","token":"…"}
//            > {"type":"data","bytes":4194304,"check":false}, then as many bytes
//            < {"type":"got"}                          once the last byte was taken
//   by MPI   < {"type":"ranks","library":"Open MPI v4.1.4","hosts":["n1","n2"],
//               "kernels":["6.1.0","6.1.0"],"processes":[211,212]}    as the ranks are there
//            > {"type":"run",…}, where flow a * ranks + b goes from a to b, < {"type":"ran",…}
//   any      < {"type":"error","code":"unavailable","message":"…"}
//
// Times are the agent's monotonic clock. Checked data is pattern_byte's; of other data the bytes do
// not matter.
// Invariants: whatever arrives, parsing gives a message within the limits or an error.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/processor_time.h"
#include "base/result.h"
#include "profile/set_timer.h"

namespace jige::profile {

inline constexpr int64_t kAgentVersion = 3;
inline constexpr size_t kFrameHeadBytes = 8;
inline constexpr size_t kFramePayloadMax = 64 * 1024;
inline constexpr int64_t kTransferBytesMax = int64_t{1} << 36;
inline constexpr int64_t kFlowsMax = 4096;  // flows an agent keeps open
inline constexpr int64_t kTimeoutMsMax = 3'600'000;
inline constexpr int64_t kCollectiveBytesMax = int64_t{1} << 28;
inline constexpr int64_t kRepeatsMax = 1000;
inline constexpr int64_t kClockNsMax = int64_t{1} << 60;  // either way; differences fit as well
inline constexpr int64_t kTicksMax = int64_t{1} << 40;

enum class AgentRole { kControl, kData };

struct HelloMessage {
  int64_t version = kAgentVersion;
  AgentRole role = AgentRole::kControl;
  std::string token;
};
struct WelcomeMessage {
  int64_t version = kAgentVersion;
  std::string kernel;
  std::vector<std::string> congestion;
};
struct ClockMessage {
  int64_t now_ns = 0;  // absent in a question
};
struct OpenMessage {
  int64_t flow = 0;
  std::string address;
  int64_t port = 0;
  std::string congestion;  // empty: the kernel's own choice
  int64_t timeout_ms = 0;
};
struct OpenedMessage {
  int64_t flow = 0;
};
struct RunMessage {
  std::vector<int64_t> flows;
  std::vector<int64_t> bytes;  // of each flow
  int64_t start_ns = 0;        // of the agent's clock
  int64_t timeout_ms = 0;
};
struct RanMessage {
  std::vector<FlowTimes> times;  // in the order of the question
  ProcessorTime processors;      // of the host meanwhile; nothing: not known
};
// For a group of ranks to meet: the first opens a port at its address.
struct ListenMessage {
  std::string address;
};
struct ListeningMessage {
  int64_t port = 0;
};
// A ring and its part of the data.
struct RingOrder {
  std::vector<int64_t> order;
  double weight = 1;
};
struct CollectMessage {
  int64_t rank = 0;
  std::vector<RingOrder> rings;  // of every rank once
  std::vector<int64_t> trees;    // every rank once, or none
  std::vector<std::vector<int64_t>> rounds;
  std::string address;  // where rank 0 listens
  int64_t port = 0;
  std::string own;  // the address this rank's data leave from
  std::string congestion;
  int64_t bytes = 0;  // of the whole
  int64_t repeats = 1;
  int64_t timeout_ms = 0;
};
struct CollectedMessage {
  std::vector<int64_t> times_ns;  // of each repeat
};
// The ranks that MPI has started (mpi/mpi_rank.h).
struct RanksMessage {
  std::string library;
  std::vector<std::string> hosts, kernels;  // of each
  std::vector<int64_t> processes;           // likewise, their ids
};
struct DataMessage {
  int64_t bytes = 0;
  bool check = false;
};
struct GotMessage {};
struct ErrorMessage {
  Code code = Code::kInternal;
  std::string message;
};

using AgentMessage =
    std::variant<HelloMessage, WelcomeMessage, ClockMessage, OpenMessage, OpenedMessage, RunMessage,
                 RanMessage, ListenMessage, ListeningMessage, CollectMessage, CollectedMessage,
                 RanksMessage, DataMessage, GotMessage, ErrorMessage>;

// Head and payload of a frame.
std::string frame_of(const AgentMessage& message);

// The payload's length. Fails with kCorrupt on another beginning, kExhausted on a longer payload.
Result<size_t> payload_size(std::span<const std::byte, kFrameHeadBytes> head);
// Fails with kCorrupt on what is no message, kInvalidArgument on a field out of its limits.
Result<AgentMessage> parse_message(std::string_view payload);

// Whether two tokens are equal, in a time that does not tell where they differ.
bool same_token(std::string_view a, std::string_view b);

// Byte `offset` of the data that is checked.
std::byte pattern_byte(uint64_t offset);

}  // namespace jige::profile
