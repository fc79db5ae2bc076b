#include "profile/shm_rank.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "comm/types.h"
#include "profile/agent_collective.h"
#include "profile/agent_wire.h"
#include "profile/start_line.h"

namespace jige::profile {
namespace {

constexpr int64_t kChunkBytes = 32 << 10;  // so that both ends of a stream work at once
constexpr double kForeverS = 1e9;
constexpr double kAnswerSeconds = 10;  // to get an answer to the profiler

// What of a flow this rank moves in a run.
struct Stream {
  int64_t flow = 0;
  comm::Link link;
  bool sends = false;
  bool checked = false;
  int64_t bytes = 0;  // whole units
  int64_t moved = 0;
  FlowTimes times;

  std::byte expected(int64_t offset) const {
    return pattern_byte((static_cast<uint64_t>(flow + 1) << 40) + static_cast<uint64_t>(offset));
  }
};

class ShmRank {
 public:
  ShmRank(const ShmRankOptions& options, comm::Transport& transport)
      : options_(options),
        transport_(transport),
        source_(static_cast<size_t>(comm::whole_units(options.buffer_bytes)), std::byte{1}),
        sink_(source_.size(), std::byte{0}) {}

  Result<RanMessage> run(const RunMessage& message) {
    const int64_t latest_ns = comm::monotonic_ns() + message.timeout_ms * 1'000'000;
    JIGE_TRY(std::vector<Stream> streams, streams_of(message));
    wait_until(std::min(message.start_ns, latest_ns));
    for (Stream& stream : streams) stream.times.begin_ns = comm::monotonic_ns();
    JIGE_DO(move(streams, comm::Deadline::at_ns(latest_ns)));
    RanMessage ran;
    for (const Stream& stream : streams) {
      ran.times.push_back(stream.times);
      checked_.insert(stream.flow);
    }
    return ran;
  }

 private:
  Result<std::vector<Stream>> streams_of(const RunMessage& message) const {
    std::vector<Stream> streams;
    const int64_t size = transport_.size(), own = transport_.rank();
    for (size_t i = 0; i < message.flows.size(); ++i) {
      const int64_t flow = message.flows[i];
      const int64_t src = flow / size, dst = flow % size;
      if (src >= size || src == dst || (src != own && dst != own)) {
        return fail(Code::kInvalidArgument, "flow {} is none of rank {} of {}", flow, own, size);
      }
      streams.push_back({.flow = flow,
                         .link = {.peer = static_cast<int>(src == own ? dst : src)},
                         .sends = src == own,
                         .checked = !checked_.contains(flow),
                         .bytes = comm::whole_units(message.bytes[i])});
    }
    return streams;
  }

  Status move(std::vector<Stream>& streams, comm::Deadline deadline) {
    const int64_t begin_ns = comm::monotonic_ns();
    std::vector<comm::Want> wants;
    for (;;) {
      bool moved = false;
      wants.clear();
      for (Stream& stream : streams) {
        if (stream.moved == stream.bytes) continue;
        JIGE_TRY(const int64_t bytes, stream.sends ? send_part(stream) : take_part(stream));
        moved |= bytes > 0;
        stream.moved += bytes;
        if (stream.moved == stream.bytes) {
          stream.times.end_ns = comm::monotonic_ns();
        } else {
          wants.push_back({stream.link, !stream.sends});
        }
      }
      if (wants.empty()) return {};
      if (moved) continue;
      if (deadline.passed()) {
        const auto seconds = static_cast<double>(comm::monotonic_ns() - begin_ns) * 1e-9;
        return tl::unexpected<Error>(transport_.timeout_error(wants, seconds));
      }
      JIGE_DO(transport_.wait(wants, deadline));
    }
  }

  // Where in a buffer byte `at` of a stream lies, and how many of `bytes` follow there.
  std::span<std::byte> part(std::vector<std::byte>& buffer, int64_t at, int64_t bytes) const {
    const size_t offset = static_cast<size_t>(at) % buffer.size();
    return {buffer.data() + offset, std::min(static_cast<size_t>(bytes), buffer.size() - offset)};
  }

  Result<int64_t> send_part(const Stream& stream) {
    JIGE_TRY(std::span<std::byte> room, transport_.room(stream.link));
    const int64_t most =
        std::min({static_cast<int64_t>(room.size()), kChunkBytes, stream.bytes - stream.moved});
    if (most == 0) return 0;
    const std::span<const std::byte> from = part(source_, stream.moved, most);
    room = room.first(from.size());
    if (stream.checked) {
      for (size_t i = 0; i < room.size(); ++i) {
        room[i] = stream.expected(stream.moved + static_cast<int64_t>(i));
      }
      if (options_.spoil) options_.spoil(transport_.rank(), room);
    } else {
      std::memcpy(room.data(), from.data(), from.size());
    }
    const auto bytes = static_cast<int64_t>(from.size());
    JIGE_DO(transport_.commit(stream.link, bytes));
    return bytes;
  }

  Result<int64_t> take_part(const Stream& stream) {
    JIGE_TRY(const std::span<const std::byte> ready, transport_.ready(stream.link));
    const int64_t most =
        std::min({static_cast<int64_t>(ready.size()), kChunkBytes, stream.bytes - stream.moved});
    if (most == 0) return 0;
    const std::span<std::byte> to = part(sink_, stream.moved, most);
    std::memcpy(to.data(), ready.data(), to.size());
    const auto bytes = static_cast<int64_t>(to.size());
    for (int64_t i = 0; stream.checked && i < bytes; ++i) {
      if (to[static_cast<size_t>(i)] == stream.expected(stream.moved + i)) continue;
      return fail(Code::kCorrupt, "byte {} of the data from {} came wrong; the memory is not safe",
                  stream.moved + i, transport_.name(stream.link.peer));
    }
    transport_.consume(stream.link, bytes);
    return bytes;
  }

  const ShmRankOptions& options_;
  comm::Transport& transport_;
  std::vector<std::byte> source_, sink_;
  std::set<int64_t> checked_;  // flows whose content was
};

}  // namespace

int serve_shm_rank(const ShmRankOptions& options, std::unique_ptr<comm::Transport> transport,
                   comm::Socket& control) {
  const auto give_up = [&](const Error& error) {
    (void)send_message(control, ErrorMessage{error.code, error.message}, comm::Deadline::after(1));
    transport->abort(error);
    return 1;
  };
  // Before any memory is touched, so that it comes from the right node.
  if (Status pinned = pin_to(options.place); !pinned) return give_up(pinned.error());
  ShmRank rank(options, *transport);
  Meeting meeting;
  for (;;) {
    const auto message = receive_message(control, comm::Deadline::after(kForeverS));
    if (!message && message.error().code == Code::kUnavailable) return 0;
    if (!message) return give_up(message.error());
    auto reply = answer_collective(*message, meeting, "shm");
    if (const auto* run = std::get_if<RunMessage>(&*message)) {
      auto ran = rank.run(*run);
      if (!ran) return give_up(ran.error());
      reply = std::move(*ran);
    }
    if (!reply) return give_up({Code::kUnsupported, "not asked for like that"});
    if (!send_message(control, *reply, comm::Deadline::after(kAnswerSeconds))) return 1;
  }
}

}  // namespace jige::profile
