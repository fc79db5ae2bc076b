// Instructions that trap, emulated without the trap from the second time on: a jump to a stub takes
// the place of the first of them, and the stub calls a function with the registers. A trap takes
// longer than what is emulated.
//
// The jump is written at once, within a cache line, so that other threads run either; where it does
// not fit, or memory cannot be had near the code, the instructions go on to trap.
// For processors with AVX512_BF16. Threads: any, also in handlers of the signals of traps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jige {

// As instructions count them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
struct TrapRegisters {
  uint64_t general[16];
};

// Instructions one after the other: their bytes, and where they stand, which those say that address
// memory from there.
struct TrapCode {
  static constexpr size_t kBytesMax = 96;

  const uint8_t* bytes;
  const uint8_t* at;
  size_t length;
};

using EmulateTrap = void (*)(const TrapCode&, const TrapRegisters&);

// While one exists, no other thread changes code: who traps reads it under one.
class CodeLock {
 public:
  CodeLock();
  ~CodeLock();
  CodeLock(const CodeLock&) = delete;
  CodeLock& operator=(const CodeLock&) = delete;
};

// Lets `emulate` have the instructions [at, at + length) from now on, if possible, with a copy of
// their bytes behind which kBytesMax - length zeros stand. It leaves all registers as they are.
// REQUIRES: a CodeLock, length <= kBytesMax, the first one has five bytes or more, a jump goes to
// no other byte of it than its first.
void emulate_without_trap(const uint8_t* at, size_t length, EmulateTrap emulate);

// Whether this is done for the instruction there.
bool is_emulated_without_trap(const uint8_t* at);

}  // namespace jige
