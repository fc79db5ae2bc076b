#include "serve/row_pooler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace jige::serve {
namespace {

constexpr double kNormMin = 1e-12;

}  // namespace

Status check_pooled(const EmbeddingForm& form, int64_t token_count, int64_t prompt_count) {
  if (RowPooler(form, token_count, prompt_count).first() < token_count) return {};
  return fail(Code::kInvalidArgument,
              "all {} tokens belong to the prompt, which the pooling leaves out; give a longer "
              "text",
              token_count);
}

RowPooler::RowPooler(const EmbeddingForm& form, int64_t token_count, int64_t prompt_count)
    : form_(form), token_count_(token_count), first_(form.include_prompt ? 0 : prompt_count) {
  if (form.pooling == formats::PoolingKind::kLastToken) first_ = token_count - 1;
}

bool RowPooler::wants(int64_t token) const { return token >= first_ && token < token_count_; }

void RowPooler::add(int64_t token, std::span<const float> row) {
  const size_t kept = form_.dimensions > 0 ? static_cast<size_t>(form_.dimensions) : row.size();
  sum_.resize(kept);
  const bool weighted = form_.pooling == formats::PoolingKind::kWeightedMean;
  const double weight = weighted ? static_cast<double>(token + 1) : 1.0;
  for (size_t i = 0; i < kept; ++i) sum_[i] += weight * double{row[i]};
  weight_ += weight;
}

Result<std::vector<float>> RowPooler::finish() const {
  JIGE_CHECK(!sum_.empty(), "a vector of none of {} tokens", token_count_);
  double squares = 0;
  for (const double value : sum_) squares += (value / weight_) * (value / weight_);
  const double divisor = form_.normalise ? std::max(std::sqrt(squares), kNormMin) : 1.0;
  std::vector<float> vector(sum_.size());
  for (size_t i = 0; i < sum_.size(); ++i) {
    vector[i] = static_cast<float>(sum_[i] / weight_ / divisor);
    if (!std::isfinite(vector[i])) {
      return fail(Code::kCorrupt,
                  "the model's weights hold NaN, infinity, or numbers too large to compute with: "
                  "number {} of the vector is {}",
                  i, vector[i]);
    }
  }
  return vector;
}

}  // namespace jige::serve
