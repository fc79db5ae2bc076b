#include "train/evaluate.h"

#include <algorithm>

#include "base/exact_sum.h"
#include "base/rng.h"
#include "train/permutation.h"

namespace jige::train {

std::vector<MicroBatch> choose_evaluation(std::span<const Sequence> held_out,
                                          const EvaluationOptions& options) {
  if (held_out.empty()) return {};
  const Permutation order(derive_key(options.seed, "evaluation"), held_out.size());
  std::vector<Sequence> chosen;
  int64_t tokens = 0;
  for (uint64_t place = 0; place < held_out.size() && tokens < options.tokens_max; ++place) {
    chosen.push_back(held_out[order(place)]);
    tokens += chosen.back().count;
  }
  // In the order of the corpus, which reads better from disk.
  std::sort(chosen.begin(), chosen.end(),
            [](const Sequence& a, const Sequence& b) { return a.begin < b.begin; });
  return pack_micro_batches(chosen, options.micro_batch_tokens);
}

Result<std::optional<Evaluation>> evaluate(const Corpus& corpus,
                                           std::span<const MicroBatch> micro_batches,
                                           StepEngine& engine, const WalkProgress& progress) {
  Evaluation result;
  ExactSum sum;
  HostBatch batch;
  const int64_t total = input_count_of(micro_batches);
  int64_t done = 0;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (progress && !progress(done, total)) return std::nullopt;
    done += micro_batches[i].input_count;
    result.learned_count += micro_batches[i].learned_count;
    if (!engine.takes(i)) continue;
    JIGE_DO(read_batch(corpus, micro_batches[i], batch));
    JIGE_DO(engine.evaluate(batch, sum));
  }
  JIGE_DO(engine.add_ranks(sum));
  result.loss = sum.value() / static_cast<double>(result.learned_count);
  return std::optional(result);
}

}  // namespace jige::train
