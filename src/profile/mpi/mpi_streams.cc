#include "profile/mpi/mpi_streams.h"

#include <sched.h>

#include <algorithm>

namespace jige::profile {
namespace {

constexpr int64_t kChunkBytes = int64_t{256} << 10;
constexpr size_t kUnderWayMax = 4;  // chunks of a flow
constexpr int kFlowTag = 16;        // plus the flow; lower ones are mpi_rank.cc's

std::byte expected(int64_t flow, int64_t at) {
  return pattern_byte((static_cast<uint64_t>(flow + 1) << 40) + static_cast<uint64_t>(at));
}

}  // namespace

// Buffers hold whole chunks, so that none goes round the end.
MpiStreams::MpiStreams(const MpiRankOptions& options, int rank, int size)
    : options_(options),
      rank_(rank),
      size_(size),
      source_(static_cast<size_t>(std::max<int64_t>(1, options.buffer_bytes / kChunkBytes) *
                                  kChunkBytes),
              std::byte{1}),
      sink_(source_.size(), std::byte{0}) {}

Result<std::vector<MpiStream>> MpiStreams::of(const RunMessage& order) const {
  std::vector<MpiStream> streams;
  for (size_t i = 0; i < order.flows.size(); ++i) {
    const int64_t flow = order.flows[i];
    const int64_t src = flow / size_, dst = flow % size_;
    if (src >= size_ || src == dst) {
      return fail(Code::kInvalidArgument, "flow {} is none of {} ranks", flow, size_);
    }
    if (src != rank_ && dst != rank_) continue;
    MpiStream& stream = streams.emplace_back();
    stream.flow = flow;
    stream.peer = static_cast<int>(src == rank_ ? dst : src);
    stream.sends = src == rank_;
    stream.bytes = order.bytes[i];
    if (!checked_.contains(flow)) stream.own.resize(kUnderWayMax * kChunkBytes);
  }
  return streams;
}

std::byte* MpiStreams::place(MpiStream& stream, int64_t at) {
  std::vector<std::byte>& buffer = !stream.own.empty() ? stream.own
                                   : stream.sends      ? source_
                                                       : sink_;
  return buffer.data() + static_cast<size_t>(at) % buffer.size();
}

void MpiStreams::begin_chunk(MpiStream& stream) {
  MpiStream::Chunk& chunk = stream.under_way.emplace_back();
  chunk.at = stream.begun;
  chunk.bytes = std::min(kChunkBytes, stream.bytes - stream.begun);
  stream.begun += chunk.bytes;
  std::byte* const memory = place(stream, chunk.at);
  const auto count = static_cast<int>(chunk.bytes);
  const int tag = kFlowTag + static_cast<int>(stream.flow);
  if (!stream.sends) {
    MPI_Irecv(memory, count, MPI_BYTE, stream.peer, tag, MPI_COMM_WORLD, &chunk.request);
    return;
  }
  if (!stream.own.empty()) {
    for (int64_t i = 0; i < chunk.bytes; ++i) memory[i] = expected(stream.flow, chunk.at + i);
    if (options_.spoil) options_.spoil(rank_, {memory, static_cast<size_t>(chunk.bytes)});
  }
  MPI_Isend(memory, count, MPI_BYTE, stream.peer, tag, MPI_COMM_WORLD, &chunk.request);
}

void MpiStreams::look_at(MpiStream& stream, const MpiStream::Chunk& chunk) const {
  if (stream.sends || stream.own.empty() || stream.wrong_at >= 0) return;
  const std::byte* const memory =
      stream.own.data() + static_cast<size_t>(chunk.at) % stream.own.size();
  for (int64_t i = 0; i < chunk.bytes && stream.wrong_at < 0; ++i) {
    if (memory[i] != expected(stream.flow, chunk.at + i)) stream.wrong_at = chunk.at + i;
  }
}

// Whether anything moved.
bool MpiStreams::advance(MpiStream& stream) {
  bool moved = false;
  while (!stream.under_way.empty()) {
    int over = 0;
    MPI_Test(&stream.under_way.front().request, &over, MPI_STATUS_IGNORE);
    if (over == 0) break;
    look_at(stream, stream.under_way.front());
    stream.under_way.pop_front();
    moved = true;
  }
  while (stream.begun < stream.bytes && stream.under_way.size() < kUnderWayMax) {
    begin_chunk(stream);
    moved = true;
  }
  return moved;
}

Status MpiStreams::move(std::vector<MpiStream>& streams, int64_t start_ns,
                        comm::Deadline deadline) {
  for (MpiStream& stream : streams) stream.times.begin_ns = comm::monotonic_ns() - start_ns;
  for (size_t left = streams.size(); left > 0;) {
    bool moved = false;
    for (MpiStream& stream : streams) {
      if (stream.times.end_ns != 0) continue;
      moved |= advance(stream);
      if (stream.begun < stream.bytes || !stream.under_way.empty()) continue;
      stream.times.end_ns = std::max<int64_t>(1, comm::monotonic_ns() - start_ns);
      --left;
    }
    if (moved || left == 0) continue;
    if (deadline.passed()) {
      const auto waiting =
          std::ranges::find(streams, 0, [](const MpiStream& s) { return s.times.end_ns; });
      return fail(Code::kUnavailable, "the transfer {} rank {} does not end",
                  waiting->sends ? "to" : "from", waiting->peer);
    }
    sched_yield();
  }
  for (const MpiStream& stream : streams) {
    if (stream.wrong_at >= 0) {
      return fail(Code::kCorrupt,
                  "byte {} of the data from rank {} came wrong; the link is not "
                  "safe",
                  stream.wrong_at, stream.peer);
    }
    checked_.insert(stream.flow);
  }
  return {};
}

}  // namespace jige::profile
