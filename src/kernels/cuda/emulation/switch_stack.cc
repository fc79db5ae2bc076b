#include "kernels/cuda/emulation/switch_stack.h"

asm(R"(
.pushsection .text
.globl jige_switch_stack
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
.popsection
)");
