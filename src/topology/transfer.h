// A transfer between two components: the unit that is measured, simulated and planned.
//
//   gpu0>gpu1:push          gpu0 writes into gpu1
//   gpu0>gpu1:pull          gpu1 reads from gpu0
//   gpu0>gpu1:via-numa0     gpu0 writes a host buffer on numa0, gpu1 reads it, pipelined
//   gpu0>gpu1:push+copy     the copy engine does it instead of a kernel
//   host0>host1:send        over the network
//
// Components are indices into a topology; the text form, which files keep, has their names.
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::topology {

class Topology;

enum class TransferKind { kPush, kPull, kStaged, kSend };
enum class Engine { kKernel, kCopy };

struct Transfer {
  TransferKind kind = TransferKind::kPush;
  int32_t src = -1;
  int32_t dst = -1;
  int32_t via = -1;  // the memory of a staged transfer
  Engine engine = Engine::kKernel;
  auto operator<=>(const Transfer&) const = default;
};

std::string transfer_text(const Topology& topology, const Transfer& transfer);

// Fails with kInvalidArgument, naming the text and what it lacks, or kNotFound for an unknown
// component. Whether the topology can carry it is Topology::usage's to say.
Result<Transfer> parse_transfer(const Topology& topology, std::string_view text);

// Transfers separated by commas.
Result<std::vector<Transfer>> parse_transfers(const Topology& topology, std::string_view text);

}  // namespace jige::topology
