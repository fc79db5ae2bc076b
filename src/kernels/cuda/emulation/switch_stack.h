// A switch of fibers without a system call.
//
// Threads: a stack is run on by one thread at a time.
#pragma once

namespace jige::cuda::emulation {

// Saves what a function must keep on the stack, leaves the stack pointer in *from, and goes on from
// `to`, a stack pointer that was left so.
extern "C" void jige_switch_stack(void** from, void* to);

}  // namespace jige::cuda::emulation
