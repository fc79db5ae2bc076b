// What every message between ranks begins with: which operation its sender is in.
//
// Layout, 64 bytes, little-endian: magic u32 "JGC2", collective u8, dtype u8, redop u8, path u8,
// sequence u64, count i64, root i32, plan u32 (a hash of the rings), sender i32, part u32, payload
// bytes u64, twelve bytes of zero, and a u32 hash of the sixty bytes before, taken as words (every
// small message pays for it).
//
// The receiver knows the header it expects and compares: ranks that call different operations, or
// one with different counts, learn so instead of mixing their data.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "comm/types.h"

namespace jige::comm {

inline constexpr size_t kHeaderBytes = 64;
static_assert(kHeaderBytes == kUnitBytes);

// How an operation moves its data. kMessage is none: bytes from one rank to another, with their tag
// as the sequence.
enum class Path : uint8_t { kDirect, kRing, kMessage, kTree };

struct Header {
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kU8;
  RedOp redop = RedOp::kSum;
  Path path = Path::kDirect;
  uint64_t sequence = 0;  // of the operation, counted from the making of the group
  int64_t count = 0;
  int32_t root = 0;
  uint32_t plan = 0;
  int32_t sender = 0;
  uint32_t part = 0;  // of the operation: a round, a ring, or a tree and the way in it
  uint64_t payload_bytes = 0;

  bool operator==(const Header&) const = default;
  // "all_reduce of 1000 f32 (sum), operation 17".
  std::string text() const;
};

std::array<std::byte, kHeaderBytes> encode_header(const Header& header);

// Fails with kCorrupt on anything that encode_header does not write.
Result<Header> parse_header(std::span<const std::byte, kHeaderBytes> bytes);

// Fails with kInvalidArgument when `got` is not what the receiver expects, saying what each of the
// two calls. `peer` names the sender.
Status compare_headers(const Header& expected, const Header& got, const std::string& peer);

}  // namespace jige::comm
