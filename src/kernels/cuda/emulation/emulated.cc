#include "kernels/cuda/emulation/emulated.h"

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "tensor/dtype.h"

namespace jige::cuda {

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {
namespace {

constexpr int kLanes = 32;
constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kExchangeMax = 64;

enum class Wait { kNone, kBlock, kWarp, kEnded };

struct AsyncCopy {
  void* to;
  const void* from;  // null: zeros
};

// Saves what a function must keep on the stack, leaves the stack pointer in *from, and goes on from
// `to`: a switch of fibers without a system call.
extern "C" void jige_switch_stack(void** from, void* to);
asm(R"(
.text
.type jige_switch_stack, @function
jige_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size jige_switch_stack, .-jige_switch_stack
)");

// A thread of the block that runs.
struct Fiber {
  void* stack_pointer;
  std::unique_ptr<std::byte[]> stack;
  dim3 index;
  Wait wait = Wait::kNone;
  bool begun = false;  // begin_kernel() was called
  // What the lane gave in the last two exchanges.
  alignas(16) std::array<std::array<std::byte, kExchangeMax>, 2> given;
  int turn = 0;                                // exchanges so far
  std::vector<std::vector<AsyncCopy>> groups;  // committed ones, and one that is not
};

// The block that runs. One for the process: __shared__ variables are static.
struct Block {
  void* scheduler;  // its stack pointer
  std::vector<std::unique_ptr<Fiber>> fibers;
  size_t count = 0;    // of fibers in use
  size_t current = 0;  // the one that runs
  const std::function<void()>* body = nullptr;
  std::vector<std::byte> shared;
  std::optional<DeviceMemory::Access> memory;  // of the launch, once a thread has begun
};

Block the_block;
inline Block& block() { return the_block; }

Fiber& current() { return *block().fibers[block().current]; }

void yield(Wait wait) {
  Fiber& fiber = current();
  fiber.wait = wait;
  jige_switch_stack(&fiber.stack_pointer, block().scheduler);
}

void fiber_main() {
  (*block().body)();
  JIGE_CHECK(current().begun, "a kernel ends without begin_kernel()");
  yield(Wait::kEnded);
}

void start(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  fiber.wait = Wait::kNone;
  fiber.begun = false;
  fiber.turn = 0;
  fiber.groups.assign(1, {});
  // As if fiber_main had been called, with room for the six registers that the switch takes back.
  constexpr uintptr_t kAlignment = 16;
  constexpr int kRegisters = 6;
  const auto end = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes);
  auto* top = reinterpret_cast<void**>(end / kAlignment * kAlignment);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(fiber_main);
  for (int i = 0; i < kRegisters; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

// Lets fibers [begin, end) go on where all that have not ended wait for `wait`.
bool release(size_t begin, size_t end, Wait wait) {
  Block& one = block();
  bool any = false;
  for (size_t i = begin; i < end; ++i) {
    const Wait now = one.fibers[i]->wait;
    if (now == Wait::kEnded) continue;
    if (now != wait) return false;
    any = true;
  }
  if (!any) return false;
  for (size_t i = begin; i < end; ++i) {
    if (one.fibers[i]->wait == wait) one.fibers[i]->wait = Wait::kNone;
  }
  return true;
}

void run_block() {
  Block& one = block();
  for (size_t i = 0; i < one.count; ++i) start(*one.fibers[i]);
  for (;;) {
    bool ran = false;
    for (size_t i = 0; i < one.count; ++i) {
      if (one.fibers[i]->wait != Wait::kNone) continue;
      ran = true;
      one.current = i;
      threadIdx = one.fibers[i]->index;
      jige_switch_stack(&one.scheduler, one.fibers[i]->stack_pointer);
    }
    for (size_t begin = 0; begin < one.count; begin += kLanes) {
      ran |= release(begin, std::min(one.count, begin + kLanes), Wait::kWarp);
    }
    if (ran) continue;
    if (release(0, one.count, Wait::kBlock)) continue;
    for (size_t i = 0; i < one.count; ++i) {
      JIGE_CHECK(one.fibers[i]->wait == Wait::kEnded, "thread {} of a block waits for ever", i);
    }
    return;
  }
}

void finish(const std::vector<AsyncCopy>& group) {
  constexpr size_t kBytes = 16;
  for (const AsyncCopy& copy : group) {
    if (copy.from) {
      std::memcpy(copy.to, copy.from, kBytes);
    } else {
      std::memset(copy.to, 0, kBytes);
    }
  }
}

void make_fibers(const LaunchShape& shape) {
  Block& one = block();
  one.count = size_t{shape.block.x} * shape.block.y * shape.block.z;
  JIGE_CHECK(one.count > 0 && one.count <= 1024, "a block of {} threads", one.count);
  while (one.fibers.size() < one.count) one.fibers.push_back(std::make_unique<Fiber>());
  size_t i = 0;
  for (unsigned z = 0; z < shape.block.z; ++z) {
    for (unsigned y = 0; y < shape.block.y; ++y) {
      for (unsigned x = 0; x < shape.block.x; ++x) one.fibers[i++]->index = dim3(x, y, z);
    }
  }
}

}  // namespace

void run(const LaunchShape& shape, const std::function<void()>& body) {
  constexpr size_t kAlignment = 128;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  JIGE_CHECK(shape.shared_bytes <= kSharedMax, "{} bytes of shared memory", shape.shared_bytes);
  Block& one = block();
  one.body = &body;
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

unsigned char* dynamic_shared() {
  constexpr uintptr_t kAlignment = 128;
  const auto at = reinterpret_cast<uintptr_t>(block().shared.data());
  return reinterpret_cast<unsigned char*>((at + kAlignment - 1) / kAlignment * kAlignment);
}

void check_argument(const void* value, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(value);
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, sizeof word);
    JIGE_CHECK(!DeviceMemory::looks_like_host(word),
               "byte {} of an argument of a kernel is an address of host memory", i);
  }
}

int lane() { return static_cast<int>(block().current % kLanes); }

int meet(const void* in, size_t bytes) {
  const Block& one = block();
  JIGE_CHECK(bytes <= kExchangeMax && one.count % kLanes == 0, "a warp function of {} bytes",
             bytes);
  Fiber& fiber = current();
  const int turn = fiber.turn++;
  std::memcpy(fiber.given[static_cast<size_t>(turn % 2)].data(), in, bytes);
  yield(Wait::kWarp);
  return turn;
}

const void* given_by(int source, int turn) {
  const Block& one = block();
  const size_t begin = one.current / kLanes * kLanes;
  const Fiber& other = *one.fibers[begin + static_cast<size_t>(source)];
  // It may have gone on since, and have ended.
  JIGE_CHECK(other.turn > turn, "a warp function without lane {}", source);
  return other.given[static_cast<size_t>(turn % 2)].data();
}

void copy_async(void* to, const void* from) {
  JIGE_CHECK(
      reinterpret_cast<uintptr_t>(to) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0,
      "an asynchronous copy to {} from {}, not aligned to 16", to, from);
  current().groups.back().push_back({to, from});
}

void copy_async_commit() { current().groups.emplace_back(); }

void copy_async_wait(int left) {
  auto& groups = current().groups;
  while (groups.size() > static_cast<size_t>(left) + 1) {
    finish(groups.front());
    groups.erase(groups.begin());
  }
}

}  // namespace emulation

namespace {

// What every lane gives, by lane.
template <typename T>
std::array<T, 32> from_all(const T& own) {
  const int turn = emulation::meet(&own, sizeof own);
  std::array<T, 32> all;
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(&all[i], emulation::given_by(static_cast<int>(i), turn), sizeof own);
  }
  return all;
}

void load_matrices(uint32_t (&r)[4], const void* row, bool transposed) {
  const int lane = emulation::lane();
  JIGE_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "a matrix row at {}", row);
  const int g = lane / 4;
  const int t = lane % 4;
  const auto rows = from_all(static_cast<const uint16_t*>(row));
  for (int j = 0; j < 4; ++j) {
    const auto row_at = [&](int i) { return rows[static_cast<size_t>(8 * j + i)]; };
    const uint32_t low = transposed ? row_at(2 * t)[g] : row_at(g)[2 * t];
    const uint32_t high = transposed ? row_at(2 * t + 1)[g] : row_at(g)[2 * t + 1];
    r[j] = low | high << 16;
  }
  __syncwarp();
}

float low_half(uint32_t pair) { return bits_to_float(pair << 16); }
float high_half(uint32_t pair) { return bits_to_float(pair & 0xffff0000u); }

}  // namespace

void begin_kernel() {
  emulation::Block& one = emulation::block();
  if (!one.memory) one.memory.emplace();
  emulation::current().begun = true;
}

void __syncthreads() { emulation::yield(emulation::Wait::kBlock); }

void __syncwarp(unsigned) {
  const int nothing = 0;
  emulation::meet(&nothing, sizeof nothing);
}

unsigned __ballot_sync(unsigned, int predicate) {
  unsigned bits = 0;
  const auto all = from_all(predicate);
  for (size_t i = 0; i < all.size(); ++i) bits |= (all[i] != 0 ? 1u : 0u) << i;
  return bits;
}

float half_to_float(uint16_t bits) { return jige::to_float(Float16{bits}); }

void load_matrices_x4(uint32_t (&r)[4], const void* row) { load_matrices(r, row, false); }
void load_matrices_x4_transposed(uint32_t (&r)[4], const void* row) { load_matrices(r, row, true); }

void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Operands {
    uint32_t a[4], b[2];
  };
  Operands own;
  std::copy(std::begin(a), std::end(a), own.a);
  std::copy(std::begin(b), std::end(b), own.b);
  const int lane = emulation::lane();
  const int g = lane / 4;
  const int t = lane % 4;
  const int turn = emulation::meet(&own, sizeof own);
  const auto given = [&](int source) {
    return static_cast<const Operands*>(emulation::given_by(source, turn));
  };
  // Of rows g and g + 8, and of columns 2t and 2t + 1.
  float left[2][16];
  float right[2][16];
  for (int i = 0; i < 8; ++i) {
    const int k = i % 4 * 2 + i / 4 * 8;
    const Operands* of_row = given(4 * g + i % 4);
    for (int e = 0; e < 2; ++e) {
      const uint32_t row_pair = of_row->a[i / 4 * 2 + e];
      const uint32_t column_pair = given(4 * (2 * t + e) + i % 4)->b[i / 4];
      left[e][k] = low_half(row_pair);
      left[e][k + 1] = high_half(row_pair);
      right[e][k] = low_half(column_pair);
      right[e][k + 1] = high_half(column_pair);
    }
  }
  for (int k = 0; k < 16; ++k) {
    for (int e = 0; e < 4; ++e) d[e] = std::fma(left[e / 2][k], right[e % 2][k], d[e]);
  }
}

}  // namespace jige::cuda
