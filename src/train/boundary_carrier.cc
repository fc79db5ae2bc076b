#include "train/boundary_carrier.h"

#include <algorithm>

namespace jige::train {
namespace {

// Large enough that copies run at full speed, small enough that the first one is soon down.
constexpr int64_t kPieceBytesMax = int64_t{4} << 20;

// Of a message of so many bytes at most, which is cut in two or more.
int64_t piece_bytes(int64_t message_bytes) {
  return whole_lines(std::min(kPieceBytesMax, (message_bytes + 1) / 2));
}

}  // namespace

int64_t BoundaryCarrier::staging_bytes(int64_t message_bytes) {
  return static_cast<int64_t>(kPieces) * piece_bytes(message_bytes);
}

Result<BoundaryCarrier> BoundaryCarrier::create(Arena& host, std::span<Device* const> gpus,
                                                int64_t message_bytes) {
  BoundaryCarrier carrier;
  carrier.piece_bytes_ = piece_bytes(message_bytes);
  JIGE_TRY(carrier.staging_, host.make(DType::kU8, Shape{staging_bytes(message_bytes)}));
  for (Device* const gpu : gpus) {
    JIGE_TRY(auto stream, gpu->make_stream());
    carrier.arrivals_.push_back(std::move(stream));
  }
  return carrier;
}

void BoundaryCarrier::carry(Stream& from, const Message& message) {
  Stream& to = *arrivals_[message.to];
  auto* const staging = static_cast<std::byte*>(staging_.view().data);
  std::array<Event, kPieces> left;  // when a piece has gone up, and its memory is free
  for (int64_t begin = 0, i = 0; begin < message.bytes; begin += piece_bytes_, ++i) {
    const int64_t slot = i % static_cast<int64_t>(kPieces);
    std::byte* const piece = staging + slot * piece_bytes_;
    const int64_t bytes = std::min(piece_bytes_, message.bytes - begin);
    from.wait(left[static_cast<size_t>(slot)]);
    from.copy(piece, static_cast<const std::byte*>(message.src) + begin, bytes,
              CopyKind::kDeviceToHost);
    to.wait(from.record());
    to.copy(static_cast<std::byte*>(message.dst) + begin, piece, bytes, CopyKind::kHostToDevice);
    left[static_cast<size_t>(slot)] = to.record();
  }
  to.synchronize();
}

}  // namespace jige::train
