#include "sim/step_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/load_report.h"

namespace jige::sim {
namespace {

constexpr size_t kFolds = 5;
constexpr double kSlowerQuantile = 0.9;  // of cells, by how much longer they took
// Of the sum of squares of a column that has been scaled to 1: columns that say the same share what
// they explain instead of making the system singular.
constexpr double kRidge = 1e-9;
// Cells reach so many times as far as the last knot.
constexpr double kSpanBehind = 1.25;

// The normal equations of columns scaled to length 1.
struct NormalEquations {
  size_t size = 0;
  std::vector<double> matrix = {}, right = {};
  std::vector<double> scales = {};
  double at(size_t i, size_t j) const { return matrix[i * size + j]; }
};

NormalEquations normal_equations(std::span<const std::vector<double>> rows) {
  NormalEquations made{.size = rows.empty() ? 0 : rows[0].size() - 1};
  const size_t n = made.size;
  made.scales.resize(n);
  for (const auto& row : rows) {
    for (size_t i = 0; i < n; ++i) made.scales[i] += row[i] * row[i];
  }
  for (double& scale : made.scales) scale = scale > 0 ? 1 / std::sqrt(scale) : 0;
  made.matrix.resize(n * n);
  made.right.resize(n);
  for (const auto& row : rows) {
    for (size_t i = 0; i < n; ++i) {
      const double scaled = row[i] * made.scales[i];
      made.right[i] += scaled * row[n];
      for (size_t j = 0; j < n; ++j) made.matrix[i * n + j] += scaled * row[j] * made.scales[j];
    }
  }
  for (size_t i = 0; i < n; ++i) made.matrix[i * n + i] += kRidge;
  return made;
}

// The unbounded optimum over `free` columns, by Cholesky's decomposition; 0 elsewhere.
std::vector<double> solve_free(const NormalEquations& equations, const std::vector<size_t>& free) {
  const size_t n = free.size();
  std::vector<double> lower(n * n), y(n), x(equations.size);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = equations.at(free[i], free[j]);
      for (size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      lower[i * n + j] =
          i == j ? std::sqrt(std::max(sum, kRidge * kRidge)) : sum / lower[j * n + j];
    }
    double sum = equations.right[free[i]];
    for (size_t k = 0; k < i; ++k) sum -= lower[i * n + k] * y[k];
    y[i] = sum / lower[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    double sum = y[i];
    for (size_t k = i + 1; k < n; ++k) sum -= lower[k * n + i] * x[free[k]];
    x[free[i]] = sum / lower[i * n + i];
  }
  return x;
}

// The column whose growth from 0 would help most; none: size.
size_t most_wanted(const NormalEquations& equations, const std::vector<double>& x,
                   const std::vector<bool>& is_free) {
  size_t best = equations.size;
  double best_gain = 1e-12;
  for (size_t i = 0; i < equations.size; ++i) {
    if (is_free[i] || equations.scales[i] == 0) continue;
    double gain = equations.right[i];
    for (size_t j = 0; j < equations.size; ++j) gain -= equations.at(i, j) * x[j];
    if (gain > best_gain) {
      best_gain = gain;
      best = i;
    }
  }
  return best;
}

// Moves x towards the optimum over the free columns, until it is there or columns are at 0, which
// are bound then, and again.
void go_to_optimum(const NormalEquations& equations, std::vector<double>& x,
                   std::vector<bool>& is_free) {
  for (;;) {
    std::vector<size_t> free;
    for (size_t i = 0; i < equations.size; ++i) {
      if (is_free[i]) free.push_back(i);
    }
    const std::vector<double> optimum = solve_free(equations, free);
    double step = 1;
    for (const size_t i : free) {
      if (optimum[i] <= 0) step = std::min(step, x[i] / std::max(x[i] - optimum[i], 1e-300));
    }
    for (const size_t i : free) x[i] += step * (optimum[i] - x[i]);
    if (step >= 1) return;
    for (const size_t i : free) {
      if (optimum[i] > 0 || x[i] > 1e-12) continue;
      x[i] = 0;
      is_free[i] = false;
    }
  }
}

using FeatureOf = double StepFeatures::*;

std::vector<double> used_knots(std::span<const StepCell> cells, const std::vector<double>& knots,
                               FeatureOf feature) {
  std::vector<double> values;
  for (const StepCell& cell : cells) values.push_back(cell.features.*feature);
  std::ranges::sort(values);
  std::vector<double> used;
  double before = 0;
  for (const double knot : knots) {
    const auto next = std::ranges::upper_bound(values, before);
    if (next == values.end() || values.back() < kSpanBehind * knot) continue;
    // One that tells the segment's slope, and not the noise at its beginning.
    const auto far = std::ranges::lower_bound(values, (before + knot) / 2);
    if (far == values.end() || *far > knot) continue;
    used.push_back(knot);
    before = knot;
  }
  return used;
}

// A piecewise linear function of a feature, and where StepTime has it.
struct Piecewise {
  FeatureOf feature;
  std::vector<StepSegment> StepTime::*segments;
  double StepTime::*rest;
  std::vector<double> StepFitOptions::*knots;
};
constexpr Piecewise kPiecewise[] = {
    {&StepFeatures::rows, &StepTime::row_segments, &StepTime::token_s, &StepFitOptions::row_knots},
    {&StepFeatures::sampled_rows, &StepTime::sampled_row_segments, &StepTime::sampled_row_s,
     &StepFitOptions::sampled_row_knots},
    {&StepFeatures::decode_keys, &StepTime::decode_key_segments, &StepTime::decode_key_s,
     &StepFitOptions::decode_key_knots}};

// What the model's terms are multiplied with, and the model of given terms, in the same order.
class Terms {
 public:
  Terms(std::span<const StepCell> cells, const StepFitOptions& options) : limits_(options.limits) {
    for (const Piecewise& one : kPiecewise) {
      knots_.push_back(used_knots(cells, options.*one.knots, one.feature));
    }
  }

  std::vector<double> of(const StepFeatures& f) const {
    std::vector<double> terms = {1, f.kv_tokens, f.pairs, f.sequences,
                                 f.sampled_rows > 0 ? 1.0 : 0.0};
    for (size_t i = 0; i < knots_.size(); ++i) {
      const double value = f.*kPiecewise[i].feature;
      double begin = 0;
      for (const double knot : knots_[i]) {
        terms.push_back(std::clamp(value - begin, 0.0, knot - begin));
        begin = knot;
      }
      terms.push_back(std::max(value - begin, 0.0));
    }
    return terms;
  }

  StepTime model(const std::vector<double>& terms) const {
    size_t at = 0;
    StepTime step;
    for (double StepTime::*const term :
         {&StepTime::base_s, &StepTime::kv_token_s, &StepTime::pair_s, &StepTime::sequence_s,
          &StepTime::sampling_s}) {
      step.*term = terms[at++];
    }
    for (size_t i = 0; i < knots_.size(); ++i) {
      for (const double knot : knots_[i]) {
        (step.*kPiecewise[i].segments).push_back({knot, terms[at++]});
      }
      step.*kPiecewise[i].rest = terms[at++];
    }
    step.limits = limits_;
    return step;
  }

 private:
  std::vector<std::vector<double>> knots_;
  plan::ForwardLimits limits_;
};

// Errors as they come, in all and by the kind of cell.
class ErrorLists {
 public:
  void add(const StepTime& step, const StepCell& cell) {
    const double error = step.forward_seconds(cell.features) / cell.seconds - 1;
    all_.push_back(error);
    kinds_[cell.kind].push_back(error);
  }

  StepErrors errors() const {
    StepErrors made{.all = step_error(all_)};
    for (const auto& [kind, errors] : kinds_) made.kinds[kind] = step_error(errors);
    return made;
  }

 private:
  std::vector<double> all_;
  std::map<std::string, std::vector<double>> kinds_;
};

}  // namespace

StepError step_error(std::vector<double> errors) {
  StepError all{.cells = std::ssize(errors)};
  if (errors.empty()) return all;
  for (double& error : errors) {
    all.mean += std::abs(error) / static_cast<double>(errors.size());
    if (std::abs(error) > std::abs(all.worst)) all.worst = error;
    error = 1 / (1 + error) - 1;
  }
  std::ranges::sort(errors);
  all.slower = std::max(0.0, quantile(errors, kSlowerQuantile));
  return all;
}

std::vector<double> solve_non_negative(std::span<const std::vector<double>> rows) {
  const NormalEquations equations = normal_equations(rows);
  std::vector<double> x(equations.size);
  std::vector<bool> is_free(equations.size);
  // Each round lowers the sum of squares, but for rounding: the bound is for that.
  for (size_t round = 0; round < 10 * equations.size; ++round) {
    const size_t wanted = most_wanted(equations, x, is_free);
    if (wanted == equations.size) break;
    is_free[wanted] = true;
    go_to_optimum(equations, x, is_free);
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] *= equations.scales[i];
  return x;
}

Result<StepTime> fit_step_time(std::span<const StepCell> cells, const StepFitOptions& options) {
  if (cells.empty()) return fail(Code::kInvalidArgument, "no times of iterations to fit");
  const Terms terms(cells, options);
  std::vector<std::vector<double>> rows;
  for (const StepCell& cell : cells) {
    if (!(cell.seconds > 0) || !std::isfinite(cell.seconds)) {
      return fail(Code::kInvalidArgument, "an iteration of {} rows took {} s; it must be above 0",
                  cell.features.rows, cell.seconds);
    }
    std::vector<double> row = terms.of(cell.features);
    for (double& term : row) term /= cell.seconds;
    row.push_back(1);
    rows.push_back(std::move(row));
  }
  return terms.model(solve_non_negative(rows));
}

StepErrors step_errors(const StepTime& step, std::span<const StepCell> cells) {
  ErrorLists lists;
  for (const StepCell& cell : cells) lists.add(step, cell);
  return lists.errors();
}

Result<StepErrors> held_out_errors(std::span<const StepCell> cells, const StepFitOptions& options) {
  ErrorLists lists;
  for (size_t fold = 0; fold < std::min(kFolds, cells.size()); ++fold) {
    std::vector<StepCell> seen;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i % kFolds != fold) seen.push_back(cells[i]);
    }
    if (seen.empty()) break;
    JIGE_TRY(const StepTime step, fit_step_time(seen, options));
    for (size_t i = fold; i < cells.size(); i += kFolds) lists.add(step, cells[i]);
  }
  return lists.errors();
}

}  // namespace jige::sim
