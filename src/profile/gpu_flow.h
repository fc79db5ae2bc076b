// One transfer to or from a GPU, by copy engines or by a kernel: straight to another GPU's memory,
// into or out of host memory, or through host memory to another GPU, pipelined over a few slots.
//
//   JIGE_TRY(GpuFlow flow, GpuFlow::create(box, {.kind = GpuPath::kPush, .src = 0, .dst = 1}));
//   JIGE_DO(flow.check_content(deadline));        // once, before anything is timed
//   JIGE_DO(flow.start(bytes));                    // returns at once
//   JIGE_DO(flow.finish(deadline));
//
// The engine, or the kernel, is of the GPU whose stream it is: the sender's for a push, the
// receiver's for a pull, both for what is staged. Transfers larger than the buffers go round in
// them. Invariants: at most one start without its finish. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/deadline.h"
#include "profile/gpu_box.h"

namespace jige::profile {

enum class GpuPath { kPush, kPull, kToHost, kFromHost, kStaged };

struct GpuRoute {
  GpuPath path = GpuPath::kPush;
  size_t src = 0;       // GPU; not of kFromHost
  size_t dst = 0;       // GPU; not of kToHost
  int32_t numa = -1;    // of the host memory, where there is some
  bool kernel = false;  // not a copy engine

  auto operator<=>(const GpuRoute&) const = default;
};

class GpuFlow {
 public:
  static Result<std::unique_ptr<GpuFlow>> create(GpuBox& box, const GpuRoute& route);
  ~GpuFlow();
  GpuFlow(const GpuFlow&) = delete;
  GpuFlow& operator=(const GpuFlow&) = delete;

  Status start(int64_t bytes);
  // Fails with kUnavailable past the deadline; the box is then abandoned.
  Status finish(comm::Deadline deadline);
  // Moves a pattern and compares all of it. Fails with kCorrupt, naming the first byte.
  Status check_content(comm::Deadline deadline);
  // "the GPU at 0000:17:00.0 to the GPU at …"
  std::string text() const;

 private:
  static constexpr size_t kSlots = 4;
  struct Slot {
    std::byte* memory = nullptr;
    CuEvent full = nullptr, free = nullptr;
  };

  GpuFlow(GpuBox& box, const GpuRoute& route) : box_(box), route_(route) {}
  bool has_src() const { return route_.path != GpuPath::kFromHost; }
  bool has_dst() const { return route_.path != GpuPath::kToHost; }
  const Gpu& src() const { return box_.gpus()[route_.src]; }
  const Gpu& dst() const { return box_.gpus()[route_.dst]; }
  // Whose engine has the last part.
  size_t last_gpu() const;
  Status prepare();
  Status add_stream(CuStream& stream, size_t gpu);
  Status add_event(CuEvent& event, size_t gpu);
  // A part by engine or kernel of this GPU, which this thread has entered.
  Status to_host(size_t gpu, std::byte* to, CuPointer from, int64_t bytes, CuStream stream);
  Status from_host(size_t gpu, CuPointer to, std::byte* from, int64_t bytes, CuStream stream);
  Status between(size_t gpu, int64_t bytes);
  Status start_straight(int64_t bytes);
  Status start_staged(int64_t bytes);

  GpuBox& box_;
  GpuRoute route_;
  CuStream out_ = nullptr;  // of the sender, where what is staged leaves it
  CuStream last_ = nullptr;
  CuEvent done_ = nullptr;
  std::byte* host_ = nullptr;  // buffer_bytes of it, where the transfer begins or ends there
  int64_t slot_bytes_ = 0;
  std::array<Slot, kSlots> slots_;
};

}  // namespace jige::profile
