#include "train/preference_passes.h"

#include <algorithm>

namespace jige::train {
namespace {

static_assert(sizeof(PairRecord) == 4 * sizeof(double) && sizeof(ReferencePair) == 24,
              "ranks complete them as numbers");

// A pair's place is completed as the bits that it has.
template <typename T>
std::span<double> numbers_of(std::vector<T>& values) {
  return {reinterpret_cast<double*>(values.data()), values.size() * sizeof(T) / sizeof(double)};
}

}  // namespace

PreferencePasses::PreferencePasses(const DpoOptions& options, StepEngine& engine,
                                   Executor& executor, int64_t micro_batch_tokens)
    : options_(options),
      engine_(engine),
      executor_(executor),
      micro_batch_tokens_(micro_batch_tokens),
      tasks_(two_pass_tasks(engine.weights().architecture().node_count())) {}

Result<std::vector<PairLogProbs>> PreferencePasses::run_forward(const Corpus& corpus,
                                                                const MicroBatch& micro_batch,
                                                                const BatchTerms& terms) {
  JIGE_DO(read_batch(corpus, micro_batch, batch_));
  executor_.load(engine_.stream(), batch_, terms);
  executor_.run(engine_.stream(), tasks_.forward);
  const std::vector<double> losses = executor_.sequence_losses(engine_.stream());
  std::vector<PairLogProbs> pairs;
  for (size_t i = 0; i + 1 < losses.size(); i += 2) pairs.push_back({-losses[i], -losses[i + 1]});
  return pairs;
}

std::vector<float> PreferencePasses::weigh(const MicroBatch& micro_batch,
                                           std::span<const ReferencePair> reference,
                                           std::span<const PairLogProbs> policy, int64_t pair_count,
                                           std::span<PairRecord> records) const {
  std::vector<float> weights;
  auto targets = batch_.targets.begin();
  for (size_t i = 0; i < policy.size(); ++i) {
    const auto chosen_end = targets + batch_.counts[2 * i];
    const auto chosen = std::count_if(targets, chosen_end, [](int32_t id) { return id >= 0; });
    targets = chosen_end + batch_.counts[2 * i + 1];
    const PairTerms terms = pair_terms(
        options_, policy[i], find_reference(reference, micro_batch.sequences[i].begin), chosen);
    records[i] = {terms.loss, terms.margin, policy[i]};
    const auto share = [&](double weight) {
      return static_cast<float>(weight / static_cast<double>(pair_count));
    };
    weights.push_back(share(terms.chosen_weight));
    weights.push_back(share(terms.rejected_weight));
  }
  return weights;
}

void PreferencePasses::start_records(std::span<const MicroBatch> micro_batches) {
  record_begin_ = {0};
  for (const MicroBatch& batch : micro_batches) {
    record_begin_.push_back(record_begin_.back() + std::ssize(batch.sequences));
  }
  records_.assign(static_cast<size_t>(record_begin_.back()), {});
}

std::span<PairRecord> PreferencePasses::records_of(size_t micro_batch) {
  const auto begin = static_cast<size_t>(record_begin_[micro_batch]);
  return std::span(records_).subspan(begin,
                                     static_cast<size_t>(record_begin_[micro_batch + 1]) - begin);
}

Result<PreferenceSums> PreferencePasses::add_records() {
  JIGE_DO(engine_.complete(numbers_of(records_)));
  PreferenceSums sums;
  for (const PairRecord& pair : records_) sums.add(pair);
  return sums;
}

void PreferencePasses::begin_step(const StepPlan& plan) {
  plan_ = &plan;
  start_records(plan.micro_batches);
}

Status PreferencePasses::forward(const Corpus& corpus, size_t micro_batch,
                                 const BatchTerms& terms) {
  const MicroBatch& batch = plan_->micro_batches[micro_batch];
  JIGE_TRY(const auto policy, run_forward(corpus, batch, terms));
  executor_.weigh_sequences(engine_.stream(), weigh(batch, reference_.training, policy,
                                                    std::ssize(records_), records_of(micro_batch)));
  return {};
}

Result<PreferenceSums> PreferencePasses::end_step() { return add_records(); }

Result<std::optional<PreferenceMeans>> PreferencePasses::measure(
    const Corpus& corpus, std::span<const MicroBatch> micro_batches, const WalkProgress& progress) {
  start_records(micro_batches);
  const int64_t total = input_count_of(micro_batches);
  int64_t done = 0;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (progress && !progress(done, total)) return std::nullopt;
    done += micro_batches[i].input_count;
    if (!engine_.takes(i)) continue;
    JIGE_TRY(const auto policy, run_forward(corpus, micro_batches[i], {}));
    weigh(micro_batches[i], reference_.held_out, policy, 1, records_of(i));
  }
  JIGE_TRY(const PreferenceSums sums, add_records());
  return std::optional(sums.means());
}

Result<std::vector<ReferencePair>> PreferencePasses::logprobs(
    const Corpus& corpus, std::span<const Sequence> pairs,
    const std::function<bool(int64_t)>& progress) {
  std::vector<ReferencePair> result(pairs.size());
  size_t at = 0;
  int64_t done = 0;
  const std::vector<MicroBatch> micro_batches = pack_micro_batches(pairs, micro_batch_tokens_);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const MicroBatch& batch = micro_batches[i];
    if (engine_.takes(i)) {
      JIGE_TRY(const auto both, run_forward(corpus, batch, {}));
      for (size_t k = 0; k < both.size(); ++k) {
        result[at + k] = {batch.sequences[k].begin, both[k]};
      }
    }
    at += batch.sequences.size();
    done += batch.input_count;
    if (progress && !progress(done)) {
      return fail(Code::kCancelled, "stopped while the reference was computed");
    }
  }
  JIGE_DO(engine_.complete(numbers_of(result)));
  return result;
}

}  // namespace jige::train
