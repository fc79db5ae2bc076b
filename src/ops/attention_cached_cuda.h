// The paged cache on GPUs: what kv_append and attention_cached do there once they have checked
// their arguments. Sequences lie in host memory; the tables that kernels read of them go to the
// device with the work. They follow from the batch, the window and the heads, so the layers of a
// model have the same (StepTables); and they are padded, so that launches stay the
// same while contexts grow for some steps (CudaStream::run_repeated). Threads: asynchronous on the
// stream, which is a GPU's.
#pragma once

#include "ops/attention.h"

namespace jige::ops {

// REQUIRES: the arguments are checked.
void kv_append_on_gpu(Stream& stream, const KvCacheView& cache, const TensorView& k,
                      const TensorView& v, const std::vector<SequenceSpan>& sequences);
void attention_cached_on_gpu(Stream& stream, const AttentionCached& args);
bool attention_step_on_gpu(Stream& stream, const AttentionStep& args);

}  // namespace jige::ops
