#include "sim/step_time.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace jige::sim {
namespace {

double piecewise_seconds(std::span<const StepSegment> segments, double rest_s, double count) {
  double all_s = 0;
  double begin = 0;
  for (const StepSegment& segment : segments) {
    all_s += segment.unit_s * std::clamp(count - begin, 0.0, segment.end - begin);
    begin = segment.end;
  }
  return all_s + rest_s * std::max(count - begin, 0.0);
}

}  // namespace

void StepFeatures::add(int64_t context, int64_t row_count, int64_t sample_rows) {
  const auto count = static_cast<double>(row_count);
  const auto before = static_cast<double>(context);
  rows += count;
  sampled_rows += static_cast<double>(sample_rows);
  sequences += 1;
  kv_tokens += before + count;
  if (row_count == 1) decode_keys += before + 1;
  pairs += count * before + count * (count + 1) / 2;
}

double StepTime::rows_seconds(double rows) const {
  return piecewise_seconds(row_segments, token_s, rows);
}

double StepTime::forward_seconds(const StepFeatures& features) const {
  return base_s + rows_seconds(features.rows) + (features.sampled_rows > 0 ? sampling_s : 0) +
         piecewise_seconds(sampled_row_segments, sampled_row_s, features.sampled_rows) +
         piecewise_seconds(decode_key_segments, decode_key_s, features.decode_keys) +
         sequence_s * features.sequences + kv_token_s * features.kv_tokens +
         pair_s * features.pairs;
}

template <typename SecondsOf>
double StepTime::cut_seconds(const plan::Batch& batch, std::vector<double>& item_end_s,
                             const SecondsOf& seconds_of) const {
  double all_s = 0;
  StepFeatures features;
  std::vector<size_t> order, of_forward;
  item_end_s.resize(batch.items.size());
  const Status done = plan::cut_into_forwards(
      batch, limits, order,
      [&](const plan::ForwardPart& part) -> Status {
        features.add(batch.items[part.item].context_count + part.begin, part.count,
                     part.sample_rows);
        of_forward.push_back(part.item);
        return {};
      },
      [&]() -> Status {
        all_s += seconds_of(std::exchange(features, {}));
        for (const size_t item : of_forward) item_end_s[item] = all_s;  // of its last part
        of_forward.clear();
        return {};
      });
  static_cast<void>(done);  // neither call fails
  return all_s;
}

double StepTime::seconds(const plan::Batch& batch) const {
  std::vector<double> item_end_s;
  return cut_seconds(batch, item_end_s,
                     [this](const StepFeatures& features) { return forward_seconds(features); });
}

double StepTime::draw_seconds(const plan::Batch& batch, std::vector<double>& item_end_s,
                              Rng& rng) const {
  return cut_seconds(batch, item_end_s, [&](const StepFeatures& features) {
    const double usual_s = forward_seconds(features);
    return usual_s * noise.draw(usual_s, rng);
  });
}

double StepTime::forward_count(const StepFeatures& sums) const {
  const auto rows_max = static_cast<double>(limits.rows_max);
  const auto sample_rows_max = static_cast<double>(limits.sample_rows_max);
  return std::max(
      {1.0, std::ceil(sums.rows / rows_max), std::ceil(sums.sampled_rows / sample_rows_max)});
}

double StepTime::mean_seconds(const StepFeatures& sums) const {
  const double usual_s = seconds(sums);
  return usual_s * noise.mean(usual_s / forward_count(sums));
}

double StepTime::seconds(const StepFeatures& sums) const {
  const double forwards = forward_count(sums);
  if (forwards == 1) return forward_seconds(sums);
  const auto rows_max = static_cast<double>(limits.rows_max);
  const double full = std::floor(sums.rows / rows_max);
  const double left = forwards - full;
  const double sampling = std::clamp(sums.sampled_rows, 1.0, forwards);
  double all_s = full * rows_seconds(rows_max);
  if (left > 0) all_s += left * rows_seconds((sums.rows - full * rows_max) / left);
  // The other terms are 0 at 0, so that of an empty forward is the base.
  StepFeatures one_of_sampling = {.sampled_rows = sums.sampled_rows / sampling};
  StepFeatures one = {.sequences = sums.sequences / forwards,
                      .kv_tokens = sums.kv_tokens / forwards,
                      .decode_keys = sums.decode_keys / forwards,
                      .pairs = sums.pairs / forwards};
  return all_s + forwards * forward_seconds(one) +
         sampling * (forward_seconds(one_of_sampling) - base_s);
}

}  // namespace jige::sim
