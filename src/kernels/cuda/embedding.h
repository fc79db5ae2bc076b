// Rows of a table picked by token, and the sum of gradients back into the rows. Tokens are not
// checked. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/embedding.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void embedding_forward(const LaunchStream& stream, const cpu::EmbeddingForwardArgs& args,
                       int64_t rows);

// Adds rows of grad_dst in ascending order, as the CPU does. `scratch` has as many bytes as the
// former function says.
int64_t embedding_backward_scratch(const cpu::EmbeddingBackwardArgs& args);
void embedding_backward(const LaunchStream& stream, const cpu::EmbeddingBackwardArgs& args,
                        int64_t width, void* scratch);

// dst[t] = src[t] where it is below `limit`, else 0.
void known_tokens(const LaunchStream& stream, int32_t* dst, const int32_t* src, int64_t count,
                  int32_t limit);

}  // namespace jige::cuda
