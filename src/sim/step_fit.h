// The fit of a StepTime to measured times of iterations.
//
// The sum of squared relative errors is smallest among all models none of whose terms is negative
// (non-negative least squares, by Lawson and Hanson's active set), so the fit is monotone in every
// feature. Its error is told on cells that it has not seen: each fifth of the cells is held out in
// turn. The same cells give the same fit, to the bit.
// Threads: pure functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/step_time.h"

namespace jige::sim {

// What was measured: iterations of one forward that are alike.
struct StepCell {
  std::string kind;  // "decode", "prompt", "piece" or "mixed"
  StepFeatures features;
  double seconds = 0;  // the median
  double low_s = 0;    // quartiles
  double high_s = 0;
  int64_t runs = 0;
  // That another program took a processor from; times are those of the others where these are
  // enough.
  int64_t disturbed = 0;
};

// Of relative errors, model over measured less 1.
struct StepError {
  int64_t cells = 0;
  double mean = 0;   // of absolute ones
  double worst = 0;  // the largest, with its sign
  // A tenth of the cells took longer than the model says by this share of what it says, or more; 0
  // where they did not.
  double slower = 0;
};
// REQUIRES: above -1.
StepError step_error(std::vector<double> errors);

struct StepErrors {
  StepError all;
  std::map<std::string, StepError> kinds;

  // By how much bounds on latency should count as less, as a share, since iterations may take
  // longer than the model says: what is within the bounds less this keeps them where all take
  // `all.slower` longer.
  double margin() const { return all.slower / (1 + all.slower); }
};

// Where a function may bend. A knot counts where a cell lies between it and the one before, and
// others lie behind it.
struct StepFitOptions {
  std::vector<double> row_knots = {2,  3,  4,  6,  8,   10,  12,  14,  16,  20,   24,  28,
                                   32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048};
  std::vector<double> sampled_row_knots = {2, 4, 8, 16, 32, 64, 128};
  std::vector<double> decode_key_knots = {1000, 2000, 4000, 8000, 16000, 32000};
  plan::ForwardLimits limits = {};
};

// x >= 0 with the least |A x - b|^2, where `rows` are those of A with b behind them. REQUIRES: rows
// of equal length, finite.
std::vector<double> solve_non_negative(std::span<const std::vector<double>> rows);

// Fails with kInvalidArgument on no cells, and times that are not above 0.
Result<StepTime> fit_step_time(std::span<const StepCell> cells, const StepFitOptions& options);

// Of a model on cells.
StepErrors step_errors(const StepTime& step, std::span<const StepCell> cells);
// Of models that were fitted without the cells they are asked about. Fails as fit_step_time().
Result<StepErrors> held_out_errors(std::span<const StepCell> cells, const StepFitOptions& options);

}  // namespace jige::sim
