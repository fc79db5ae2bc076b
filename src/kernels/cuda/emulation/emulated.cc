#include "kernels/cuda/emulation/emulated.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/split.h"
#include "kernels/cuda/emulation/current_gpu.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/late_queue.h"
#include "kernels/cuda/emulation/switch_stack.h"
#include "tensor/dtype.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace jige::cuda {

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

int lane_that_runs;

namespace {

constexpr size_t kLanes = 32;
constexpr size_t kStackBytes = size_t{256} << 10;

enum class Wait : uint8_t { kNone, kBlock, kWarp, kEnded };

struct AsyncCopy {
  void* to;
  const void* from;  // null: zeros
};

// What the thread sanitizer has to know of a stack that code runs on.
struct SanitizerFiber {
#if defined(__SANITIZE_THREAD__)
  void* handle = nullptr;
  void enter() {
    if (!handle) handle = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(handle, 0);
  }
  void is_here() { handle = __tsan_get_current_fiber(); }
#else
  void enter() {}
  void is_here() {}
#endif
};

// A thread of the block that runs.
struct Fiber {
  void* stack_pointer;
  SanitizerFiber sanitizer;
  std::unique_ptr<std::byte[]> stack;
  dim3 index;
  bool begun = false;  // begin_kernel() was called
  // Asynchronous copies that were not waited for, and where each committed group of them ends.
  std::vector<AsyncCopy> copies;
  std::vector<size_t> group_ends;
};

// The lanes of a warp, and what they exchange.
struct Warp {
  std::array<Wait, kLanes> waits;
  size_t live;     // lanes that have not ended
  size_t waiting;  // of those, who wait for the warp
  // What a lane gave in the last two exchanges.
  alignas(64) std::array<std::array<std::array<std::byte, kExchangeMax>, kLanes>, 2> given;
  std::array<int, kLanes> turns;  // exchanges so far
  // What is made for all lanes of what they gave, and in which exchange.
  std::array<std::array<float, 4>, kLanes> products;
  std::array<std::array<uint16_t, 8>, kLanes> matrix_rows;
  int products_turn, rows_turn;
};

// The block that runs. One for the process: __shared__ variables are static.
struct Block {
  void* scheduler;  // its stack pointer
  SanitizerFiber scheduler_sanitizer;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  size_t count = 0;        // of fibers in use
  size_t current = 0;      // the one that runs
  Fiber* fiber = nullptr;  // the same
  Warp* warp = nullptr;    // its warp
  size_t live = 0;         // those that have not ended
  size_t waiting = 0;      // of those, who wait for the block
  const std::function<void()>* body = nullptr;
  std::vector<std::byte> shared;
  int gpu = 0;                                 // that the launch is on
  std::optional<DeviceMemory::Access> memory;  // of the launch, once a thread has begun
};

Block the_block;
inline Block& block() { return the_block; }

Fiber& current() { return *block().fiber; }
Warp& warp() { return *block().warp; }

// Makes fiber `i` the one that runs, and saves where the running one stood in *from.
void go_on(size_t i, void** from) {
  Block& one = block();
  Fiber& fiber = one.fibers[i];
  one.current = i;
  one.fiber = &fiber;
  one.warp = &one.warps[i / kLanes];
  lane_that_runs = static_cast<int>(i % kLanes);
  threadIdx = fiber.index;
  fiber.sanitizer.enter();
  jige_switch_stack(from, fiber.stack_pointer);
}

// The first lane that can run, or kLanes.
size_t first_ready(const Warp& of) {
  return static_cast<size_t>(std::find(of.waits.begin(), of.waits.end(), Wait::kNone) -
                             of.waits.begin());
}

// Lets lanes go on that wait for `wait`.
void release(Warp& of, Wait wait) {
  std::replace(of.waits.begin(), of.waits.end(), wait, Wait::kNone);
}

// Counts the fiber that runs among those that wait or have ended.
void count(Block& one, Warp& of, Wait wait) {
  of.waits[one.current % kLanes] = wait;
  if (wait == Wait::kWarp) ++of.waiting;
  if (wait == Wait::kBlock) ++one.waiting;
  if (wait == Wait::kEnded) {
    --of.live;
    --one.live;
  }
}

// The next lane of the warp takes over; where all have come that it waits for, the first one; else
// the scheduler.
void yield(Wait wait) {
  Block& one = block();
  Fiber& fiber = current();
  Warp& of = warp();
  count(one, of, wait);
  size_t next = one.current % kLanes + 1;
  if (next == kLanes || of.waits[next] != Wait::kNone) {
    if (of.live == 0 || of.waiting < of.live) {
      one.scheduler_sanitizer.enter();
      jige_switch_stack(&fiber.stack_pointer, one.scheduler);
      return;
    }
    of.waiting = 0;
    release(of, Wait::kWarp);
    next = first_ready(of);
  }
  const size_t i = one.current / kLanes * kLanes + next;
  if (i != one.current) go_on(i, &fiber.stack_pointer);
}

// Never returns: the next block's thread goes on where the last one's ended.
void fiber_main() {
  for (;;) {
    Fiber& fiber = current();
    fiber.begun = false;
    fiber.copies.clear();
    fiber.group_ends.clear();
    (*block().body)();
    JIGE_CHECK(current().begun, "a kernel ends without begin_kernel()");
    yield(Wait::kEnded);
  }
}

// As if fiber_main had been called, with room for the six registers that the switch takes back. The
// lanes of a warp, which take turns, have theirs at places of a page that share few cache lines.
void make_stack(Fiber& fiber, size_t lane) {
  constexpr uintptr_t kAlignment = 64;
  constexpr uintptr_t kPage = 4096;
  constexpr int kRegisters = 6;
  fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);  // most is never used
  const auto end =
      reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) - lane * (kPage / kLanes);
  auto* top = reinterpret_cast<void**>(end / kAlignment * kAlignment);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(fiber_main);
  for (int i = 0; i < kRegisters; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void start(Warp& of, size_t lanes) {
  of.waits.fill(Wait::kEnded);
  std::fill_n(of.waits.begin(), lanes, Wait::kNone);
  of.live = lanes;
  of.waiting = 0;
  of.turns.fill(0);
  of.products_turn = of.rows_turn = -1;
}

// Runs the lanes of a warp until all wait for the block or have ended.
void run_warp(size_t index) {
  Block& one = block();
  const Warp& of = one.warps[index];
  for (size_t lane = first_ready(of); lane < kLanes; lane = first_ready(of)) {
    go_on(index * kLanes + lane, &one.scheduler);
  }
}

// Lets all go on where all that have not ended wait for the block.
bool release_block() {
  Block& one = block();
  if (one.live == 0 || one.waiting < one.live) return false;
  one.waiting = 0;
  for (Warp& of : one.warps) release(of, Wait::kBlock);
  return true;
}

void run_block() {
  Block& one = block();
  one.live = one.count;
  one.waiting = 0;
  for (size_t i = 0; i < one.warps.size(); ++i) {
    start(one.warps[i], std::min<size_t>(one.count - i * kLanes, kLanes));
  }
  do {
    for (size_t i = 0; i < one.warps.size(); ++i) run_warp(i);
  } while (release_block());
  for (size_t i = 0; one.live > 0 && i < one.count; ++i) {
    JIGE_CHECK(one.warps[i / kLanes].waits[i % kLanes] == Wait::kEnded,
               "thread {} of a block waits for ever", i);
  }
}

void finish(const AsyncCopy& copy) {
  constexpr size_t kBytes = 16;
  if (copy.from) {
    std::memcpy(copy.to, copy.from, kBytes);
  } else {
    std::memset(copy.to, 0, kBytes);
  }
}

void make_fibers(const LaunchShape& shape) {
  Block& one = block();
  one.count = size_t{shape.block.x} * shape.block.y * shape.block.z;
  JIGE_CHECK(one.count > 0 && one.count <= 1024, "a block of {} threads", one.count);
  for (size_t i = one.fibers.size(); i < one.count; ++i) {
    make_stack(one.fibers.emplace_back(), i % kLanes);
  }
  one.warps.resize((one.count + kLanes - 1) / kLanes);
  size_t i = 0;
  for (unsigned z = 0; z < shape.block.z; ++z) {
    for (unsigned y = 0; y < shape.block.y; ++y) {
      for (unsigned x = 0; x < shape.block.x; ++x) one.fibers[i++].index = dim3(x, y, z);
    }
  }
}

}  // namespace

void run(int gpu, const LaunchShape& shape, const std::function<void()>& body) {
  constexpr size_t kAlignment = 128;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  JIGE_CHECK(shape.shared_bytes <= shared_bytes_of(gpu), "{} bytes of shared memory on GPU {}",
             shape.shared_bytes, gpu);
  Block& one = block();
  one.scheduler_sanitizer.is_here();
  one.body = &body;
  one.gpu = gpu;
  one.shared.assign(static_cast<size_t>(shape.shared_bytes) + kAlignment, std::byte{0xff});
  make_fibers(shape);
  gridDim = shape.grid;
  blockDim = shape.block;
  for (unsigned z = 0; z < shape.grid.z; ++z) {
    for (unsigned y = 0; y < shape.grid.y; ++y) {
      for (unsigned x = 0; x < shape.grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        run_block();
      }
    }
  }
  one.memory.reset();
}

void submit(const LaunchStream& stream, std::function<void()> work) {
  LateQueue* const queue =
      stream.handle ? static_cast<StreamPlace*>(stream.handle)->queue : nullptr;
  queue ? queue->put(std::move(work)) : work();
}

int64_t shared_bytes_of(int gpu) {
  constexpr int64_t kDataCentre = int64_t{227} << 10;
  const char* const sizes = std::getenv("JIGE_EMULATED_SHARED_KIB");
  if (!sizes) return kDataCentre;
  const auto items = split_at(sizes, ',');
  const size_t item = std::min(static_cast<size_t>(gpu), items.size() - 1);
  return int64_t{std::atoi(std::string(items[item]).c_str())} << 10;
}

int64_t shared_max() { return shared_bytes_of(current_gpu()); }

unsigned char* dynamic_shared() {
  constexpr uintptr_t kAlignment = 128;
  const auto at = reinterpret_cast<uintptr_t>(block().shared.data());
  return reinterpret_cast<unsigned char*>((at + kAlignment - 1) / kAlignment * kAlignment);
}

void load_table(void* to, const void* from, size_t bytes) {
  std::optional<DeviceMemory::Access> access;
  if (!block().memory) access.emplace(block().gpu);
  std::memcpy(to, from, bytes);
}

void* place_to_give() {
  Warp& of = warp();
  const auto own = static_cast<size_t>(lane());
  return of.given[static_cast<size_t>(of.turns[own] % 2)][own].data();
}

int meet() {
  JIGE_CHECK(block().count % kLanes == 0, "a warp function in a block of {} threads",
             block().count);
  const int turn = warp().turns[static_cast<size_t>(lane())]++;
  yield(Wait::kWarp);
  return turn;
}

const void* given_by(int source, int turn) {
  const Warp& of = warp();
  const auto lane = static_cast<size_t>(source);
  // It may have gone on since, and have ended.
  JIGE_CHECK(of.turns[lane] > turn, "a warp function without lane {}", source);
  return of.given[static_cast<size_t>(turn % 2)][lane].data();
}

void copy_async(void* to, const void* from) {
  JIGE_CHECK(
      reinterpret_cast<uintptr_t>(to) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0,
      "an asynchronous copy to {} from {}, not aligned to 16", to, from);
  current().copies.push_back({to, from});
}

void copy_async_commit() { current().group_ends.push_back(current().copies.size()); }

void copy_async_wait(int left) {
  Fiber& fiber = current();
  const size_t kept = std::min(fiber.group_ends.size(), static_cast<size_t>(left));
  const size_t groups = fiber.group_ends.size() - kept;
  if (groups == 0) return;
  const size_t done = fiber.group_ends[groups - 1];
  for (size_t i = 0; i < done; ++i) finish(fiber.copies[i]);
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<ptrdiff_t>(done));
  fiber.group_ends.erase(fiber.group_ends.begin(),
                         fiber.group_ends.begin() + static_cast<ptrdiff_t>(groups));
  for (size_t& end : fiber.group_ends) end -= done;
}

}  // namespace emulation

namespace {

// What every lane gives, by lane.
template <typename T>
std::array<T, 32> from_all(const T& own) {
  const int turn = emulation::meet_with(own);
  std::array<T, 32> all;
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(&all[i], emulation::given_by(static_cast<int>(i), turn), sizeof own);
  }
  return all;
}

void load_matrices(uint32_t (&r)[4], const void* row, bool transposed) {
  JIGE_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "a matrix row at {}", row);
  const int turn = emulation::meet_with(row);
  emulation::Warp& warp = emulation::warp();
  if (warp.rows_turn != turn) {  // the lane that comes first reads for all
    warp.rows_turn = turn;
    for (size_t i = 0; i < warp.matrix_rows.size(); ++i) {
      const void* of;
      std::memcpy(&of, emulation::given_by(static_cast<int>(i), turn), sizeof of);
      std::memcpy(warp.matrix_rows[i].data(), of, sizeof warp.matrix_rows[i]);
    }
  }
  const auto g = static_cast<size_t>(emulation::lane() / 4);
  const auto pair = static_cast<size_t>(emulation::lane() % 4 * 2);
  for (size_t j = 0; j < 4; ++j) {
    const auto* const rows = &warp.matrix_rows[8 * j];
    const uint32_t low = transposed ? rows[pair][g] : rows[g][pair];
    const uint32_t high = transposed ? rows[pair + 1][g] : rows[g][pair + 1];
    r[j] = low | high << 16;
  }
}

float low_half(uint32_t pair) { return bits_to_float(pair << 16); }
float high_half(uint32_t pair) { return bits_to_float(pair & 0xffff0000u); }

struct MmaOperands {
  uint32_t a[4], b[2];
  float d[4];
};

// d + a b of 16 x 16 and 16 x 8 numbers, in ascending order of what is summed, to warp.products.
// Lane 4 g + t has rows g and g + 8 of a and d, and column g of b; of those columns 2t and 2t + 1
// of d, and in pairs 2t, 2t + 1, 2t + 8 and 2t + 9 of what is summed.
void multiply_for_all(emulation::Warp& warp, int turn) {
  float left[16][16];
  alignas(32) float right[16][8], sum[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    MmaOperands of;
    std::memcpy(&of, emulation::given_by(lane, turn), sizeof of);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int part = 0; part < 2; ++part) {
      const int k = 2 * t + 8 * part;
      for (int half = 0; half < 2; ++half) {
        left[g + 8 * half][k] = low_half(of.a[2 * part + half]);
        left[g + 8 * half][k + 1] = high_half(of.a[2 * part + half]);
        sum[g + 8 * half][2 * t + part] = of.d[2 * half + part];
      }
      right[k][g] = low_half(of.b[part]);
      right[k + 1][g] = high_half(of.b[part]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    __m256 sums = _mm256_load_ps(sum[row]);
    for (int k = 0; k < 16; ++k)
      sums = _mm256_fmadd_ps(_mm256_set1_ps(left[row][k]), _mm256_load_ps(right[k]), sums);
    _mm256_store_ps(sum[row], sums);
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int e = 0; e < 4; ++e) {
      warp.products[static_cast<size_t>(lane)][static_cast<size_t>(e)] =
          sum[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2];
    }
  }
  warp.products_turn = turn;
}

}  // namespace

void begin_kernel() {
  emulation::Block& one = emulation::block();
  if (!one.memory) one.memory.emplace(one.gpu);
  emulation::current().begun = true;
}

void __syncthreads() { emulation::yield(emulation::Wait::kBlock); }

void __syncwarp(unsigned) { emulation::meet(); }

unsigned __ballot_sync(unsigned, int predicate) {
  unsigned bits = 0;
  const auto all = from_all(predicate);
  for (size_t i = 0; i < all.size(); ++i) bits |= (all[i] != 0 ? 1u : 0u) << i;
  return bits;
}

float half_to_float(uint16_t bits) { return jige::to_float(Float16{bits}); }
uint16_t float_to_half(float value) { return to_float16(value).bits; }

void load_matrices_x4(uint32_t (&r)[4], const void* row) { load_matrices(r, row, false); }
void load_matrices_x4_transposed(uint32_t (&r)[4], const void* row) { load_matrices(r, row, true); }

void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOperands own;
  std::copy(std::begin(a), std::end(a), own.a);
  std::copy(std::begin(b), std::end(b), own.b);
  std::copy(std::begin(d), std::end(d), own.d);
  const int turn = emulation::meet_with(own);
  emulation::Warp& warp = emulation::warp();
  // The lane that comes first multiplies for all.
  if (warp.products_turn != turn) multiply_for_all(warp, turn);
  const auto& products = warp.products[static_cast<size_t>(emulation::lane())];
  std::copy(products.begin(), products.end(), d);
}

}  // namespace jige::cuda
