#include "serve/row_pooler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace jige::serve {

using formats::PoolingKind;

namespace {

constexpr double kNormMin = 1e-12;

double activated(formats::VectorActivation activation, double x) {
  switch (activation) {
    case formats::VectorActivation::kTanh:
      return std::tanh(x);
    case formats::VectorActivation::kGelu:
      return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
    case formats::VectorActivation::kRelu:
      return x > 0 ? x : x * 0;  // NaN where x is
    case formats::VectorActivation::kIdentity:
      break;
  }
  return x;
}

void normalise(const formats::VectorNorm& norm, std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / count + norm.eps);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = (values[i] - mean) / deviation * double{norm.weight[i]};
    if (!norm.bias.empty()) values[i] += double{norm.bias[i]};
  }
}

// A sum for each output, over the inputs in ascending order.
std::vector<double> through(const formats::VectorLayer& layer, const std::vector<double>& src) {
  JIGE_CHECK(std::ssize(src) == layer.inputs, "{} numbers for a layer of {}", src.size(),
             layer.inputs);
  std::vector<double> dst(layer.bias.begin(), layer.bias.end());
  dst.resize(static_cast<size_t>(layer.outputs));
  const float* weights = layer.weight.data();
  for (const double value : src) {
    for (double& sum : dst) sum += value * double{*weights++};
  }
  for (double& value : dst) value = activated(layer.activation, value);
  if (!layer.norm.weight.empty()) normalise(layer.norm, dst);
  return dst;
}

}  // namespace

Status check_pooled(const EmbeddingForm& form, int64_t token_count, int64_t prompt_count) {
  if (RowPooler(form, token_count, prompt_count).counts()) return {};
  return fail(Code::kInvalidArgument,
              "all {} tokens belong to the prompt, which the pooling leaves out; give a longer "
              "text",
              token_count);
}

RowPooler::RowPooler(const EmbeddingForm& form, int64_t token_count, int64_t prompt_count)
    : form_(form), token_count_(token_count) {
  std::vector<PoolingKind> kinds = form.further;
  kinds.insert(kinds.begin(), form.pooling);
  for (const PoolingKind kind : kinds) {
    Pool pool{.kind = kind, .first = form.include_prompt ? 0 : prompt_count, .end = token_count};
    if (kind == PoolingKind::kLastToken) pool.first = token_count - 1;
    if (kind == PoolingKind::kCls) pool.end = std::min(token_count, pool.first + 1);
    pools_.push_back(std::move(pool));
  }
}

bool RowPooler::counts() const {
  return std::all_of(pools_.begin(), pools_.end(),
                     [](const Pool& pool) { return pool.first < pool.end; });
}

int64_t RowPooler::first() const {
  int64_t first = token_count_;
  for (const Pool& pool : pools_) first = std::min(first, pool.first);
  return first;
}

int64_t RowPooler::end() const {
  int64_t end = 0;
  for (const Pool& pool : pools_) end = std::max(end, pool.end);
  return end;
}

bool RowPooler::wants(int64_t token) const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [&](const Pool& pool) { return pool.wants(token); });
}

void RowPooler::add(int64_t token, std::span<const float> row) {
  const bool cut = form_.dimensions > 0 && !form_.layers;
  const size_t kept =
      cut && pools_.size() == 1 ? static_cast<size_t>(form_.dimensions) : row.size();
  for (Pool& pool : pools_) {
    if (pool.wants(token)) pool.add(token, row, kept);
  }
}

void RowPooler::Pool::add(int64_t token, std::span<const float> row, size_t kept) {
  if (kind == PoolingKind::kMax) {
    if (sum.empty()) sum.assign(row.begin(), row.begin() + static_cast<ptrdiff_t>(kept));
    for (size_t i = 0; i < kept; ++i) {
      if (double{row[i]} > sum[i] || std::isnan(row[i])) sum[i] = row[i];
    }
    weight = 1;
    return;
  }
  sum.resize(kept);
  const double factor = kind == PoolingKind::kWeightedMean ? static_cast<double>(token + 1) : 1.0;
  for (size_t i = 0; i < kept; ++i) sum[i] += factor * double{row[i]};
  weight += factor;
}

double RowPooler::Pool::divisor() const {
  return kind == PoolingKind::kMeanSqrtLen ? std::sqrt(weight) : weight;
}

Result<std::vector<float>> RowPooler::finish() const {
  std::vector<double> values;
  for (const Pool& pool : pools_) {
    JIGE_CHECK(!pool.sum.empty(), "a vector of none of {} tokens", token_count_);
    for (const double sum : pool.sum) values.push_back(sum / pool.divisor());
  }
  if (form_.layers) {
    for (const formats::VectorLayer& layer : *form_.layers) values = through(layer, values);
  }
  if (form_.dimensions > 0) values.resize(static_cast<size_t>(form_.dimensions));
  double squares = 0;
  for (const double value : values) squares += value * value;
  const double divisor = form_.normalise ? std::max(std::sqrt(squares), kNormMin) : 1.0;
  std::vector<float> vector(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    vector[i] = static_cast<float>(values[i] / divisor);
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
