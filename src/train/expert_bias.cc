#include "train/expert_bias.h"

#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"

namespace jige::train {

void move_choice_biases(const model::NodeStreams& streams, const model::ModelWeights& weights,
                        const ExpertUse& use, double rate) {
  if (rate == 0) return;
  const auto experts = static_cast<size_t>(use.expert_count);
  const auto step = static_cast<float>(rate);
  size_t layer = 0;
  for (const model::NamedParam& param : weights.trainable()) {
    if (!param.spec->choice_bias) continue;
    Stream& stream = streams[param.node];
    const auto counts = std::span(use.counts).subspan(layer++ * experts, experts);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t bytes = use.expert_count * static_cast<int64_t>(sizeof(float));
    std::vector<float> biases(experts);
    JIGE_CHECK(param.value.count() == use.expert_count, "{} biases of {} experts",
               param.value.count(), use.expert_count);
    stream.copy(biases.data(), param.value.data, bytes, CopyKind::kDeviceToHost);
    stream.synchronize();
    for (size_t e = 0; e < experts; ++e) {
      const int64_t own = counts[e] * use.expert_count;
      if (own < all) biases[e] += step;
      if (own > all) biases[e] -= step;
    }
    stream.copy(param.value.data, biases.data(), bytes, CopyKind::kHostToDevice);
    stream.synchronize();
  }
}

}  // namespace jige::train
