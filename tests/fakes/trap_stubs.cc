#include "fakes/trap_stubs.h"

#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace jige {
namespace {

constexpr uint8_t kJump = 0xe9;  // with 32 bits of distance from its end
constexpr uint8_t kCall = 0xe8;
constexpr size_t kJumpBytes = 5;
constexpr size_t kStubs = 4096;

struct alignas(64) Stub {
  uint8_t code[64];
  uint8_t bytes[TrapCode::kBytesMax];
  const uint8_t* at;
  size_t length;
  EmulateTrap emulate;
};

// Passes the 128 bytes below the stack pointer, which the code may use, and back.
constexpr uint8_t kBelow[] = {0x48, 0x8d, 0x64, 0x24, 0x80};          // lea -128(%rsp), %rsp
constexpr uint8_t kBack[] = {0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0};  // lea 128(%rsp), %rsp
constexpr size_t kAfterCall = sizeof kBelow + kJumpBytes;

}  // namespace

// Called by a stub: saves all registers, calls jige_run_stub() and takes them back.
extern "C" void jige_enter_stub();
asm(R"(
.text
.macro jige_vectors operation
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    \operation \i
  .endr
.endm
.macro jige_save_vector i
  vmovdqa64 %zmm\i, 64*\i(%rsp)
.endm
.macro jige_take_vector i
  vmovdqa64 64*\i(%rsp), %zmm\i
.endm
.type jige_enter_stub, @function
jige_enter_stub:
  pushfq
  .irp register, r15,r14,r13,r12,r11,r10,r9,r8,rdi,rsi,rbp,rsp,rbx,rdx,rcx,rax
    pushq %\register
  .endr
  movq %rsp, %rdi
  movq 136(%rsp), %rsi            # where the stub goes on
  leaq 272(%rsp), %rax            # the stack pointer before the stub
  movq %rax, 32(%rsp)
  movq %rsp, %rbp
  subq $2112, %rsp
  andq $-64, %rsp
  jige_vectors jige_save_vector
  .irp i, 1,2,3,4,5,6,7
    kmovq %k\i, 2048+8*\i(%rsp)
  .endr
  call jige_run_stub
  .irp i, 1,2,3,4,5,6,7
    kmovq 2048+8*\i(%rsp), %k\i
  .endr
  jige_vectors jige_take_vector
  movq %rbp, %rsp
  popq %rax
  popq %rcx
  popq %rdx
  popq %rbx
  leaq 8(%rsp), %rsp
  .irp register, rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
    popq %\register
  .endr
  popfq
  ret
.size jige_enter_stub, .-jige_enter_stub
)");

extern "C" __attribute__((used, visibility("hidden"))) void jige_run_stub(
    const TrapRegisters* registers, const uint8_t* after_call) {
  const auto* stub = reinterpret_cast<const Stub*>(after_call - kAfterCall);
  stub->emulate({stub->bytes, stub->at, stub->length}, *registers);
}

namespace {

// Memory for stubs that jumps reach from the code there, or null.
Stub* stubs_near(const uint8_t* code) {
  constexpr uintptr_t kStep = uintptr_t{2} << 20;
  constexpr uintptr_t kSteps = 512;
  const uintptr_t base = reinterpret_cast<uintptr_t>(code) / kStep * kStep;
  for (uintptr_t i = 1; i <= kSteps && i * kStep < base; ++i) {
    void* const wanted = reinterpret_cast<void*>(base - i * kStep);
    void* const got = mmap(wanted, kStubs * sizeof(Stub), PROT_READ | PROT_WRITE | PROT_EXEC,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) return static_cast<Stub*>(got);
    if (got != MAP_FAILED) munmap(got, kStubs * sizeof(Stub));
  }
  return nullptr;
}

// A jump or call from `from` to `to` at `code`, which may be a copy. False: it is too far.
bool write_branch(uint8_t* code, uint8_t kind, const void* from, const void* to) {
  const int64_t distance =
      static_cast<const uint8_t*>(to) - (static_cast<const uint8_t*>(from) + kJumpBytes);
  const auto stored = static_cast<int32_t>(distance);
  code[0] = kind;
  std::memcpy(code + 1, &stored, sizeof stored);
  return stored == distance;
}

bool write_stub(Stub& stub, const uint8_t* at, size_t length, EmulateTrap emulate) {
  uint8_t* code = stub.code;
  std::memcpy(code, kBelow, sizeof kBelow);
  code += sizeof kBelow;
  const bool reaches_call =
      write_branch(code, kCall, code, reinterpret_cast<const void*>(jige_enter_stub));
  code += kJumpBytes;
  std::memcpy(code, kBack, sizeof kBack);
  code += sizeof kBack;
  std::memset(stub.bytes, 0, sizeof stub.bytes);
  std::memcpy(stub.bytes, at, length);
  stub.at = at;
  stub.length = length;
  stub.emulate = emulate;
  return write_branch(code, kJump, code, at + length) && reaches_call;
}

bool make_writable(const uint8_t* at) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(at) / page * page;
  return mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}

std::atomic_flag code_is_locked;

constexpr uintptr_t kLine = 64;
uintptr_t place_in_line(const uint8_t* at) { return reinterpret_cast<uintptr_t>(at) % kLine; }
bool fits_in_line(const uint8_t* at) { return place_in_line(at) <= kLine - kJumpBytes; }

// A jump to the stub, by one store of eight bytes within a line. REQUIRES: fits_in_line(at).
bool write_jump(const uint8_t* at, const Stub& stub) {
  const size_t before = place_in_line(at) > kLine - 8 ? 8 - kJumpBytes : 0;
  uint8_t bytes[8];
  std::memcpy(bytes, at - before, sizeof bytes);
  if (!write_branch(bytes + before, kJump, at, stub.code) || !make_writable(at)) return false;
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  asm volatile("movq %0, (%1)" : : "r"(word), "r"(at - before) : "memory");
  return true;
}

}  // namespace

CodeLock::CodeLock() {
  while (code_is_locked.test_and_set(std::memory_order_acquire)) _mm_pause();
}

CodeLock::~CodeLock() { code_is_locked.clear(std::memory_order_release); }

void emulate_without_trap(const uint8_t* at, size_t length, EmulateTrap emulate) {
  if (!fits_in_line(at)) return;
  static Stub* const stubs = stubs_near(at);
  static size_t used = 0;
  if (!stubs || used == kStubs) return;
  Stub& stub = stubs[used];
  if (write_stub(stub, at, length, emulate) && write_jump(at, stub)) ++used;
}

bool is_emulated_without_trap(const uint8_t* at) { return *at == kJump; }

}  // namespace jige
