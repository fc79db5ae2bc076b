// GroupedAttention whose scores depend on the distance of query and key.
#include <algorithm>

#include "model/grouped_attention.h"
#include "ops/distance_scores.h"

namespace jige::model {

TensorView GroupedAttention::make_distances(Stream& stream, const BlockWeights& weights,
                                            const Batch& batch, const TensorView& place) const {
  int64_t tokens = 0;
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    tokens = std::max<int64_t>(tokens, sequence.row_count);
  }
  const TensorView scores =
      TensorView::of(place.data, place.dtype, Shape{heads_, ops::distance_count(tokens)});
  ops::distance_scores(stream, scores, weights.params[*distances_].value);
  return scores;
}

}  // namespace jige::model
