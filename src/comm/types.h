// The words of the communication layer: collectives, reductions, peers.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace jige::comm {

enum class Collective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
};
inline constexpr int kCollectiveCount = 7;

// The average is the sum, divided once by the number of ranks at the end (i32: towards zero). Sums
// of i32 wrap around. A NaN on either side makes minimum and maximum NaN.
enum class RedOp : uint8_t { kSum, kMin, kMax, kAvg };
inline constexpr int kRedOpCount = 4;

// "all_reduce", as flags and JSON write it.
std::string_view collective_name(Collective collective);
std::string_view redop_name(RedOp op);

// Fail with kInvalidArgument, listing the known ones.
Result<Collective> parse_collective(std::string_view name);
Result<RedOp> parse_redop(std::string_view name);

// Fails with kUnsupported for a type that cannot be reduced: f32, bf16, f16 and i32 can.
Status check_reducible(DType dtype);

// Everything on a link comes in units of this many bytes, the last of a message padded.
inline constexpr int64_t kUnitBytes = 64;
inline int64_t whole_units(int64_t bytes) {
  return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

// Called when elements [begin, begin + count) of the result will not change any more.
using OnFinal = std::function<void(int64_t begin, int64_t count)>;

}  // namespace jige::comm
