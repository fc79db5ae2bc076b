// The way of a boundary from the memory of one GPU into that of another: through pinned memory of
// the host, which any two GPUs reach, whatever the machine lets them do directly.
//
// Two pieces take turns: while one comes down from the first GPU the other goes up to the second,
// and events between the two GPUs' streams say when. A message takes about as long as its slower
// half.
// Threads: one thread at a time; each sender has a carrier of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/arena.h"
#include "tensor/device.h"

namespace jige::train {

class BoundaryCarrier {
 public:
  // What it takes of the arena, for messages of so many bytes; longer ones go in more pieces.
  static int64_t staging_bytes(int64_t message_bytes);

  // The arena's memory is the host's, pinned; `gpus` are those that messages go to, which outlive
  // it. Fails with kExhausted.
  static Result<BoundaryCarrier> create(Arena& host, std::span<Device* const> gpus,
                                        int64_t message_bytes);

  // A message: bytes of the memory of the stream's GPU, to memory of the GPU `to`.
  struct Message {
    void* dst = nullptr;
    const void* src = nullptr;
    int64_t bytes = 0;
    size_t to = 0;  // of the GPUs
  };
  // Carries it behind what is on the stream, and waits until it is there.
  void carry(Stream& from, const Message& message);

 private:
  static constexpr size_t kPieces = 2;

  Tensor staging_;
  int64_t piece_bytes_ = 0;
  std::vector<std::unique_ptr<Stream>> arrivals_;  // one on each GPU
};

}  // namespace jige::train
