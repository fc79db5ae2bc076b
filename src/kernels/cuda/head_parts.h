// Keys and values of heads put together of parts, and heads made wider or narrower, with the bits
// of the CPU's (ops/head_parts.h says what it is). Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/head_parts.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void join_heads(const LaunchStream& stream, const cpu::HeadPartsArgs& args, int64_t rows);
void split_heads(const LaunchStream& stream, const cpu::HeadPartsArgs& args, int64_t rows);
void fit_heads(const LaunchStream& stream, const cpu::HeadColumnsArgs& args, int64_t rows);

}  // namespace jige::cuda
