// A stub leaves every register, the flags and the memory below the stack pointer as they are.
#include "fakes/trap_stubs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/cpu.h"

namespace jige {
namespace {

// What jige_run_probed() loads before the instruction jige_probed and stores behind it.
struct ProbedState {
  uint64_t general[16];  // but for rsp
  uint64_t flags;        // stored alone; the carry is set before
  uint64_t masks[8];     // but for k0
  uint64_t below;        // stored alone: rax, kept 128 bytes below the stack pointer
  alignas(64) uint8_t vectors[32][64];
};
static_assert(offsetof(ProbedState, vectors) == 256);

}  // namespace

extern "C" void jige_run_probed(ProbedState* state);
extern "C" const uint8_t jige_probed[];
asm(R"(
.text
.type jige_run_probed, @function
jige_run_probed:
  .irp register, rbx,rbp,r12,r13,r14,r15,rdi
    pushq %\register
  .endr
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqa64 256+64*\i(%rdi), %zmm\i
  .endr
  .irp i, 1,2,3,4,5,6,7
    kmovq 136+8*\i(%rdi), %k\i
  .endr
  movq 0(%rdi), %rax
  movq 8(%rdi), %rcx
  movq 16(%rdi), %rdx
  movq 24(%rdi), %rbx
  movq 40(%rdi), %rbp
  movq 48(%rdi), %rsi
  .irp i, 8,9,10,11,12,13,14,15
    movq 8*\i(%rdi), %r\i
  .endr
  movq 56(%rdi), %rdi
  movq %rax, -128(%rsp)
  stc
  .p2align 4
.globl jige_probed
jige_probed:
  .byte 0x0f, 0x1f, 0x44, 0, 0    # does nothing
  pushfq
  pushq %rdi
  movq 16(%rsp), %rdi
  movq %rax, 0(%rdi)
  movq %rcx, 8(%rdi)
  movq %rdx, 16(%rdi)
  movq %rbx, 24(%rdi)
  movq %rbp, 40(%rdi)
  movq %rsi, 48(%rdi)
  .irp i, 8,9,10,11,12,13,14,15
    movq %r\i, 8*\i(%rdi)
  .endr
  movq -112(%rsp), %rax
  movq %rax, 200(%rdi)
  popq 56(%rdi)
  popq 128(%rdi)
  .irp i, 1,2,3,4,5,6,7
    kmovq %k\i, 136+8*\i(%rdi)
  .endr
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqa64 %zmm\i, 256+64*\i(%rdi)
  .endr
  .irp register, rdi,r15,r14,r13,r12,rbp,rbx
    popq %\register
  .endr
  ret
.size jige_run_probed, .-jige_run_probed
)");

namespace {

constexpr size_t kProbedBytes = 5;
constexpr uint64_t kCarry = 1;
TrapRegisters seen;
int emulated_count = 0;

// Notes what it is told, and leaves nothing in the registers that a function may use.
void emulate_probed(const TrapCode& code, const TrapRegisters& registers) {
  seen = registers;
  emulated_count += code.length == kProbedBytes && code.at == jige_probed ? 1 : 0;
  asm volatile(
      ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,"
      "31\n"
      "  vpternlogd $255, %%zmm\\i, %%zmm\\i, %%zmm\\i\n"
      ".endr\n"
      ".irp i, 1,2,3,4,5,6,7\n"
      "  kxnorq %%k\\i, %%k\\i, %%k\\i\n"
      ".endr\n"
      "clc\n"
      :
      :
      : "cc", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
}

ProbedState numbered_state() {
  ProbedState state;
  for (uint64_t i = 0; i < 16; ++i) state.general[i] = 0x1111111111111111 * i + 3;
  for (uint64_t i = 0; i < 8; ++i) state.masks[i] = 0x0123456789abcdef + i;
  for (int i = 0; i < 32; ++i) std::memset(state.vectors[i], 3 * i + 1, 64);
  return state;
}

void expect_kept(const ProbedState& after) {
  const ProbedState before = numbered_state();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(after.general[i], before.general[i]) << i;
  for (int i = 1; i < 8; ++i) EXPECT_EQ(after.masks[i], before.masks[i]) << i;
  EXPECT_EQ(after.flags & kCarry, kCarry);
  EXPECT_EQ(after.below, before.general[0]);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(std::memcmp(after.vectors[i], before.vectors[i], 64), 0) << i;
  }
}

TEST(TrapStubs, LeaveAllRegistersAsTheyAre) {
  if (!cpu_features().avx512_bf16) GTEST_SKIP() << "needs AVX512_BF16, as those who use stubs";
  ProbedState state = numbered_state();
  jige_run_probed(&state);  // nothing is emulated yet
  expect_kept(state);
  {
    const CodeLock lock;
    emulate_without_trap(jige_probed, kProbedBytes, emulate_probed);
  }
  if (!is_emulated_without_trap(jige_probed)) GTEST_SKIP() << "code cannot be changed here";
  for (int run = 1; run <= 2; ++run) {
    state = numbered_state();
    jige_run_probed(&state);
    expect_kept(state);
    EXPECT_EQ(emulated_count, run);
    const ProbedState before = numbered_state();
    for (int i = 0; i < 16; ++i) {
      if (i == 4) continue;  // the stack pointer
      EXPECT_EQ(seen.general[i], before.general[i]) << i;
    }
  }
}

}  // namespace
}  // namespace jige
