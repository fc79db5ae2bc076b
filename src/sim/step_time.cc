#include "sim/step_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace jige::sim {

void StepFeatures::add(int64_t context, int64_t row_count, int64_t sample_rows) {
  const auto count = static_cast<double>(row_count);
  const auto before = static_cast<double>(context);
  rows += count;
  sampled_rows += static_cast<double>(sample_rows);
  sequences += 1;
  kv_tokens += before + count;
  pairs += count * before + count * (count + 1) / 2;
}

double StepTime::rows_seconds(double rows) const {
  double all_s = 0;
  double begin = 0;
  for (const RowSegment& segment : segments) {
    const double end = segment.rows_end;
    all_s += segment.row_s * std::clamp(rows - begin, 0.0, end - begin);
    begin = end;
  }
  return all_s + token_s * std::max(rows - begin, 0.0);
}

double StepTime::forward_seconds(const StepFeatures& features) const {
  return base_s + rows_seconds(features.rows) + (features.sampled_rows > 0 ? sampling_s : 0) +
         sampled_row_s * features.sampled_rows + sequence_s * features.sequences +
         kv_token_s * features.kv_tokens + pair_s * features.pairs;
}

double StepTime::seconds(const plan::Batch& batch) const {
  double all_s = 0;
  StepFeatures features;
  std::vector<size_t> order;
  const Status done = plan::cut_into_forwards(
      batch, limits, order,
      [&](const plan::ForwardPart& part) -> Status {
        features.add(batch.items[part.item].context_count + part.begin, part.count,
                     part.sample_rows);
        return {};
      },
      [&]() -> Status {
        all_s += forward_seconds(std::exchange(features, {}));
        return {};
      });
  static_cast<void>(done);  // neither call fails
  return all_s;
}

double StepTime::seconds(const StepFeatures& sums) const {
  const auto rows_max = static_cast<double>(limits.rows_max);
  const auto sample_rows_max = static_cast<double>(limits.sample_rows_max);
  const double forwards = std::max(
      {1.0, std::ceil(sums.rows / rows_max), std::ceil(sums.sampled_rows / sample_rows_max)});
  if (forwards == 1) return forward_seconds(sums);
  const double full = std::floor(sums.rows / rows_max);
  const double left = forwards - full;
  double rows_s = full * rows_seconds(rows_max);
  if (left > 0) rows_s += left * rows_seconds((sums.rows - full * rows_max) / left);
  const double sampling = std::min(forwards, sums.sampled_rows);
  return forwards * base_s + rows_s + sampling * sampling_s + sampled_row_s * sums.sampled_rows +
         sequence_s * sums.sequences + kv_token_s * sums.kv_tokens + pair_s * sums.pairs;
}

}  // namespace jige::sim
