#include "profile/gpu_flow.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "profile/agent_protocol.h"

namespace jige::profile {
namespace {

constexpr int64_t kSlotBytesMax = int64_t{2} << 20;

}  // namespace

Result<std::unique_ptr<GpuFlow>> GpuFlow::create(GpuBox& box, const GpuRoute& route) {
  std::unique_ptr<GpuFlow> flow(new GpuFlow(box, route));
  JIGE_DO(flow->prepare());
  return flow;
}

GpuFlow::~GpuFlow() {
  if (box_.abandoned()) return;
  // Streams first: what is still in them looks at the events.
  for (const CuStream stream : {out_, last_}) {
    if (stream) box_.f().stream_destroy(stream);
  }
  const auto drop = [&](CuEvent event) {
    if (event) box_.f().event_destroy(event);
  };
  drop(done_);
  for (const Slot& slot : slots_) {
    drop(slot.full);
    drop(slot.free);
  }
}

size_t GpuFlow::last_gpu() const {
  const bool of_sender = route_.path == GpuPath::kPush || route_.path == GpuPath::kToHost;
  return of_sender ? route_.src : route_.dst;
}

Status GpuFlow::add_stream(CuStream& stream, size_t gpu) {
  JIGE_DO(box_.enter(gpu));
  return box_.check(box_.f().stream_create(&stream, kCuStreamNonBlocking), "cuStreamCreate");
}

Status GpuFlow::add_event(CuEvent& event, size_t gpu) {
  JIGE_DO(box_.enter(gpu));
  return box_.check(box_.f().event_create(&event, kCuEventDisableTiming), "cuEventCreate");
}

Status GpuFlow::prepare() {
  const auto buffer_bytes = static_cast<size_t>(box_.buffer_bytes());
  if (route_.kernel && has_src()) JIGE_DO(box_.load_kernel(route_.src));
  if (route_.kernel && has_dst()) JIGE_DO(box_.load_kernel(route_.dst));
  if (route_.path == GpuPath::kPush) JIGE_DO(box_.connect(route_.src, route_.dst));
  if (route_.path == GpuPath::kPull) JIGE_DO(box_.connect(route_.dst, route_.src));
  if (!has_src() || !has_dst()) {
    JIGE_TRY(host_, box_.host_memory(buffer_bytes, route_.numa));
  }
  if (route_.path == GpuPath::kStaged) {
    slot_bytes_ = std::min(kSlotBytesMax, box_.buffer_bytes() / static_cast<int64_t>(kSlots));
    JIGE_TRY(std::byte* const memory,
             box_.host_memory(static_cast<size_t>(slot_bytes_) * kSlots, route_.numa));
    for (size_t i = 0; i < kSlots; ++i) {
      slots_[i].memory = memory + i * static_cast<size_t>(slot_bytes_);
      JIGE_DO(add_event(slots_[i].full, route_.src));
      JIGE_DO(add_event(slots_[i].free, route_.dst));
    }
    JIGE_DO(add_stream(out_, route_.src));
  }
  JIGE_DO(add_stream(last_, last_gpu()));
  return add_event(done_, last_gpu());
}

// Pinned host memory has one address for all.
Status GpuFlow::to_host(size_t gpu, std::byte* to, CuPointer from, int64_t bytes, CuStream stream) {
  if (route_.kernel) {
    return box_.copy_by_kernel(gpu, reinterpret_cast<CuPointer>(to), from, bytes, stream);
  }
  return box_.check(box_.f().to_host_async(to, from, static_cast<size_t>(bytes), stream),
                    "cuMemcpyDtoHAsync");
}

Status GpuFlow::from_host(size_t gpu, CuPointer to, std::byte* from, int64_t bytes,
                          CuStream stream) {
  if (route_.kernel) {
    return box_.copy_by_kernel(gpu, to, reinterpret_cast<CuPointer>(from), bytes, stream);
  }
  return box_.check(box_.f().to_device_async(to, from, static_cast<size_t>(bytes), stream),
                    "cuMemcpyHtoDAsync");
}

Status GpuFlow::between(size_t gpu, int64_t bytes) {
  if (route_.kernel) {
    return box_.copy_by_kernel(gpu, dst().sink, src().source, bytes, last_);
  }
  return box_.check(box_.f().peer_async(dst().sink, dst().context, src().source, src().context,
                                        static_cast<size_t>(bytes), last_),
                    "cuMemcpyPeerAsync");
}

Status GpuFlow::start(int64_t bytes) {
  JIGE_DO(route_.path == GpuPath::kStaged ? start_staged(bytes) : start_straight(bytes));
  JIGE_DO(box_.enter(last_gpu()));
  return box_.check(box_.f().event_record(done_, last_), "cuEventRecord");
}

Status GpuFlow::start_straight(int64_t bytes) {
  const size_t gpu = last_gpu();
  JIGE_DO(box_.enter(gpu));
  for (int64_t moved = 0; moved < bytes;) {
    const int64_t part = std::min(box_.buffer_bytes(), bytes - moved);
    if (route_.path == GpuPath::kToHost) {
      JIGE_DO(to_host(gpu, host_, src().source, part, last_));
    } else if (route_.path == GpuPath::kFromHost) {
      JIGE_DO(from_host(gpu, dst().sink, host_, part, last_));
    } else {
      JIGE_DO(between(gpu, part));
    }
    moved += part;
  }
  return {};
}

Status GpuFlow::start_staged(int64_t bytes) {
  const CudaFunctions& f = box_.f();
  size_t next = 0;
  for (int64_t moved = 0; moved < bytes;) {
    const Slot& slot = slots_[next++ % kSlots];
    const int64_t at = moved % box_.buffer_bytes();
    const int64_t part = std::min({slot_bytes_, bytes - moved, box_.buffer_bytes() - at});
    const auto offset = static_cast<CuPointer>(at);
    JIGE_DO(box_.enter(route_.src));
    JIGE_DO(box_.check(f.stream_wait(out_, slot.free, 0), "cuStreamWaitEvent"));
    JIGE_DO(to_host(route_.src, slot.memory, src().source + offset, part, out_));
    JIGE_DO(box_.check(f.event_record(slot.full, out_), "cuEventRecord"));
    JIGE_DO(box_.enter(route_.dst));
    JIGE_DO(box_.check(f.stream_wait(last_, slot.full, 0), "cuStreamWaitEvent"));
    JIGE_DO(from_host(route_.dst, dst().sink + offset, slot.memory, part, last_));
    JIGE_DO(box_.check(f.event_record(slot.free, last_), "cuEventRecord"));
    moved += part;
  }
  return {};
}

Status GpuFlow::finish(comm::Deadline deadline) {
  JIGE_DO(box_.enter(last_gpu()));
  for (;;) {
    const CuResult state = box_.f().event_query(done_);
    if (state == kCuSuccess) return {};
    if (state != kCuNotReady) return box_.check(state, fmt::format("a transfer from {}", text()));
    if (deadline.passed()) {
      box_.abandon();
      return fail(Code::kUnavailable,
                  "the transfer from {} does not end: a link, an IOMMU or access control between "
                  "the GPUs may be at fault",
                  text());
    }
    sched_yield();
  }
}

Status GpuFlow::check_content(comm::Deadline deadline) {
  const int64_t several_slots = 3 * kSlotBytesMax + 32;
  const auto bytes = static_cast<size_t>(std::min(box_.buffer_bytes(), several_slots));
  std::vector<std::byte> sent(bytes), came(bytes, std::byte{0});
  for (size_t i = 0; i < bytes; ++i) sent[i] = pattern_byte(i);
  if (has_src()) {
    JIGE_DO(box_.enter(route_.src));
    JIGE_DO(box_.check(box_.f().to_device(src().source, sent.data(), bytes), "cuMemcpyHtoD"));
  } else {
    std::ranges::copy(sent, host_);
  }
  if (has_dst()) {
    JIGE_DO(box_.enter(route_.dst));
    JIGE_DO(box_.check(box_.f().to_device(dst().sink, came.data(), bytes), "cuMemcpyHtoD"));
  } else {
    std::fill_n(host_, bytes, std::byte{0});
  }
  JIGE_DO(start(static_cast<int64_t>(bytes)));
  JIGE_DO(finish(deadline));
  if (has_dst()) {
    JIGE_DO(box_.enter(route_.dst));
    JIGE_DO(box_.check(box_.f().to_host(came.data(), dst().sink, bytes), "cuMemcpyDtoH"));
  } else {
    std::copy_n(host_, bytes, came.begin());
  }
  const auto wrong = static_cast<size_t>(std::ranges::mismatch(sent, came).in1 - sent.begin());
  if (wrong == bytes) return {};
  return fail(Code::kCorrupt, "byte {} came wrong from {}; the link is not safe", wrong, text());
}

std::string GpuFlow::text() const {
  const std::string memory = fmt::format("the memory of NUMA node {}", route_.numa);
  const auto gpu = [](const Gpu& g) { return "the GPU at " + g.address; };
  std::string line = has_src() ? gpu(src()) : memory;
  line += " to " + (has_dst() ? gpu(dst()) : memory);
  if (route_.path == GpuPath::kStaged) line += " through " + memory;
  if (route_.kernel) line += ", by kernel";
  return line;
}

}  // namespace jige::profile
