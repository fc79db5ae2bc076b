// What depends on the mean and the spread of a row: see kernels/cpu/row_spread.h. Threads:
// asynchronous on the stream.
#pragma once

#include "kernels/cpu/row_spread.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void row_match(const LaunchStream& stream, const cpu::RowMatchArgs& args, int64_t rows);
void row_match_backward(const LaunchStream& stream, const cpu::RowMatchBackwardArgs& args,
                        int64_t rows);
void row_cut(const LaunchStream& stream, const cpu::RowCutArgs& args, int64_t rows);
void row_cut_backward(const LaunchStream& stream, const cpu::RowCutBackwardArgs& args,
                      int64_t rows);

}  // namespace jige::cuda
