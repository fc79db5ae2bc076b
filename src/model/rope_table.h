// The angles of rotary position embeddings: one inverse frequency a pair of columns, and the table
// of cosines and sines that ops::rope reads.
//
//   plain   f[i] = theta^(-2i / head_dim)
//   linear  f[i] / factor
//   llama3  wavelength w = 2 pi / f[i], original context C: f[i] where w < C / high, f[i] / factor
//           where w > C / low, and between them f[i] ((1 - s) / factor + s),
//           s = (C / w - low) / (high - low)
// Everything is computed in double and rounded once to f32.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/model_config.h"
#include "tensor/view.h"

namespace jige::model {

// The head_dim / 2 inverse frequencies, scaling included.
std::vector<double> rope_inverse_frequencies(const formats::RopeConfig& config, int64_t head_dim);

// The table for positions 0 to position_count - 1: [position_count, head_dim], per row all
// cosines, then all sines.
std::vector<float> make_rope_table(const formats::RopeConfig& config, int64_t head_dim,
                                   int64_t position_count);

}  // namespace jige::model
