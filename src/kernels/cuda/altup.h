// Alternating updates of residual streams on rows: see kernels/cpu/altup.h. Threads: asynchronous
// on the stream.
#pragma once

#include "kernels/cpu/altup.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void altup_predict(const LaunchStream& stream, const cpu::AltUpPredictArgs& args, int64_t rows);
void altup_predict_backward(const LaunchStream& stream, const cpu::AltUpPredictBackwardArgs& args,
                            int64_t rows);
void altup_correct(const LaunchStream& stream, const cpu::AltUpCorrectArgs& args, int64_t rows);
void altup_correct_backward(const LaunchStream& stream, const cpu::AltUpCorrectBackwardArgs& args,
                            int64_t rows);
void scale_columns(const LaunchStream& stream, const cpu::ScaleColumnsArgs& args, int64_t rows);

}  // namespace jige::cuda
