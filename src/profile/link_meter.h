// Measures a set of transfers that run at once: the source of every rate that a plan rests on.
//
// A meter starts all members together, repeats until it trusts the mean, and reports each member's
// own rate beside that of the whole: a pipelined collective goes at the speed of its slowest
// member. Threads: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/transfer.h"

namespace jige::profile {

struct Measurement {
  std::vector<double> gb_per_s;  // of each member, over its own time
  double rate = 0;               // GB/s: bytes of one member over the mean time until all are done
  double deviation = 0;          // of that time, relative, from repeat to repeat
  double half_width = 0;         // 95 % confidence interval of its mean, relative
  int32_t repeats = 0;           // timed ones
  double cost_s = 0;             // time the links were busy for it, warm-up included
};

class LinkMeter {
 public:
  virtual ~LinkMeter() = default;
  // Fails with kInvalidArgument for transfers that cannot be made, kUnavailable where a device is
  // gone. REQUIRES: at least one transfer, none twice.
  virtual Result<Measurement> measure(std::span<const topology::Transfer> set) = 0;
  // The same with amounts that differ: member i carries shares[i] of a whole, and `rate` is the
  // bytes of the whole over the mean time until all are done. A meter that knows equal amounts
  // alone fails with kUnsupported on others. REQUIRES: a share above 0 for each member.
  virtual Result<Measurement> measure_shares(std::span<const topology::Transfer> set,
                                             std::span<const double> shares);
  // What stands beside every rate in reports: "simulated", "measured".
  virtual std::string_view source() const = 0;
};

}  // namespace jige::profile
