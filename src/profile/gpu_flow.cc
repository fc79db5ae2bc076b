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

Status GpuFlow::start(int64_t bytes) {
  JIGE_DO(route_.path == GpuPath::kStaged ? start_staged(bytes) : start_straight(bytes));
  JIGE_DO(box_.enter(last_gpu()));
  return box_.check(box_.f().event_record(done_, last_), "cuEventRecord");
}

Status GpuFlow::start_straight(int64_t bytes) {
  JIGE_DO(box_.enter(last_gpu()));
  const CudaFunctions& f = box_.f();
  for (int64_t moved = 0; moved < bytes;) {
    const auto part = static_cast<size_t>(std::min(box_.buffer_bytes(), bytes - moved));
    if (route_.path == GpuPath::kToHost) {
      JIGE_DO(box_.check(f.to_host_async(host_, src().source, part, last_), "cuMemcpyDtoHAsync"));
    } else if (route_.path == GpuPath::kFromHost) {
      JIGE_DO(box_.check(f.to_device_async(dst().sink, host_, part, last_), "cuMemcpyHtoDAsync"));
    } else {
      JIGE_DO(box_.check(
          f.peer_async(dst().sink, dst().context, src().source, src().context, part, last_),
          "cuMemcpyPeerAsync"));
    }
    moved += static_cast<int64_t>(part);
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
    const auto size = static_cast<size_t>(part);
    const auto offset = static_cast<CuPointer>(at);
    JIGE_DO(box_.enter(route_.src));
    JIGE_DO(box_.check(f.stream_wait(out_, slot.free, 0), "cuStreamWaitEvent"));
    JIGE_DO(box_.check(f.to_host_async(slot.memory, src().source + offset, size, out_),
                       "cuMemcpyDtoHAsync"));
    JIGE_DO(box_.check(f.event_record(slot.full, out_), "cuEventRecord"));
    JIGE_DO(box_.enter(route_.dst));
    JIGE_DO(box_.check(f.stream_wait(last_, slot.full, 0), "cuStreamWaitEvent"));
    JIGE_DO(box_.check(f.to_device_async(dst().sink + offset, slot.memory, size, last_),
                       "cuMemcpyHtoDAsync"));
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
  return line;
}

}  // namespace jige::profile
