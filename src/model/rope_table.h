// The angles of rotary position embeddings: one inverse frequency a pair of columns, and the table
// of cosines and sines that ops::rope reads.
//
//   plain   f[i] = theta^(-2i / head_dim)
//   linear  f[i] / factor
//   llama3  wavelength w = 2 pi / f[i], original context C: f[i] where w < C / high, f[i] / factor
//           where w > C / low, and between them f[i] ((1 - s) / factor + s),
//           s = (C / w - low) / (high - low)
//   yarn    original context C: pair(n) = head_dim log(C / 2 pi n) / (2 log theta) turns n times in
//           it; from a = max(pair(beta_fast), 0) to b = min(pair(beta_slow), head_dim - 1), rounded
//           outwards or not, r rises from 0 to 1: f[i] (1 - r + r / factor); cosines and sines
//           times a factor
//   proportional  f[i] / factor for the first floor(share head_dim / 2) pairs, 0 for the others
//   ntk     (theta factor)^(-2i / head_dim) factor^(-2 / head_dim)
//   longrope  f[i] / factor[i], the short factors in a table of up to the original context's
//           positions, the long ones in a longer table; cosines and sines times a factor
// A model whose sliding layers turn by other angles or have heads of another width, or whose
// queries grow with the position, has two tables side by side: the second is that of sliding
// layers, or of queries. Behind them, where queries of layers that do not turn grow
// (formats::QueryGrowthConfig), or those of heads with latents, is one of angle 0 for whole heads,
// of the size of queries.
// Everything is computed in double and rounded once to f32. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/model_config.h"
#include "tensor/view.h"

namespace jige::model {

// The columns that turn of a layer's head, 0 without rotary positions or where no layer turns.
// Those with the sliding window may have another width than the rest (formats::head_shape).
struct TurnedColumns {
  int64_t full = 0;
  int64_t sliding = 0;
};
TurnedColumns turned_columns(const formats::ModelConfig& config);

// The first column of the table of queries that grow where heads do not turn, or as whole heads of
// which a part turns; -1: there is none.
int64_t growth_begin(const formats::ModelConfig& config);

// Columns of all tables.
int64_t rope_columns(const formats::ModelConfig& config);

// Whether there are two tables side by side.
bool has_two_rope_tables(const formats::ModelConfig& config);

// The turned / 2 inverse frequencies, scaling for so many positions included.
std::vector<double> rope_inverse_frequencies(const formats::RopeConfig& config, int64_t turned,
                                             int64_t position_count);

// The table for positions 0 to position_count - 1: [position_count, turned], per row all cosines,
// then all sines.
std::vector<float> make_rope_table(const formats::RopeConfig& config, int64_t turned,
                                   int64_t position_count);

// The table of a model: [position_count, turned of full layers], and behind them the columns of its
// sliding layers or of its query_growth.
std::vector<float> make_rope_table(const formats::ModelConfig& config, int64_t position_count);

}  // namespace jige::model
