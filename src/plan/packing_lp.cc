#include "plan/packing_lp.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kEpsilon = 1e-11;

// The tableau of the simplex method: a line for each row, then the line of what a column would
// still gain. Columns are the given ones, then one slack a row, then the right side.
class Tableau {
 public:
  explicit Tableau(const std::vector<std::vector<double>>& columns)
      : columns_(columns.size()), rows_(columns.empty() ? 0 : columns[0].size()) {
    width_ = columns_ + rows_ + 1;
    cells_.assign((rows_ + 1) * width_, 0);
    basis_.resize(rows_);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t c = 0; c < columns_; ++c) at(r, c) = columns[c][r];
      at(r, columns_ + r) = 1;
      at(r, width_ - 1) = 1;
      basis_[r] = columns_ + r;
    }
    for (size_t c = 0; c < columns_; ++c) at(rows_, c) = 1;
  }

  void solve() {
    // The first of the columns that gain always ends (Bland); the one that gains most is faster.
    const size_t fast = 20 * (rows_ + columns_);
    for (size_t step = 0;; ++step) {
      const size_t enters = entering(step >= fast);
      if (enters == width_) return;
      pivot(leaving(enters), enters);
    }
  }

  Packing result() {
    Packing packing{.value = -at(rows_, width_ - 1),
                    .weights = std::vector<double>(columns_, 0),
                    .prices = std::vector<double>(rows_, 0)};
    for (size_t r = 0; r < rows_; ++r) {
      if (basis_[r] < columns_) packing.weights[basis_[r]] = std::max(0.0, at(r, width_ - 1));
      packing.prices[r] = std::max(0.0, -at(rows_, columns_ + r));
    }
    return packing;
  }

 private:
  double& at(size_t row, size_t column) { return cells_[row * width_ + column]; }

  size_t entering(bool first) {
    size_t best = width_;
    for (size_t c = 0; c + 1 < width_; ++c) {
      if (at(rows_, c) <= kEpsilon) continue;
      if (first) return c;
      if (best == width_ || at(rows_, c) > at(rows_, best)) best = c;
    }
    return best;
  }

  size_t leaving(size_t column) {
    size_t best = rows_;
    double least = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < rows_; ++r) {
      if (at(r, column) <= kEpsilon) continue;
      const double ratio = at(r, width_ - 1) / at(r, column);
      const bool tie = best < rows_ && ratio <= least && basis_[r] < basis_[best];
      if (ratio < least || tie) {
        least = std::min(least, ratio);
        best = r;
      }
    }
    JIGE_CHECK(best < rows_, "a column of a packing takes nothing of any row");
    return best;
  }

  void pivot(size_t row, size_t column) {
    const double scale = 1 / at(row, column);
    for (size_t c = 0; c < width_; ++c) at(row, c) *= scale;
    for (size_t r = 0; r <= rows_; ++r) {
      const double factor = at(r, column);
      if (r == row || factor == 0) continue;
      for (size_t c = 0; c < width_; ++c) at(r, c) -= factor * at(row, c);
    }
    basis_[row] = column;
  }

  size_t columns_, rows_, width_ = 0;
  std::vector<double> cells_;
  std::vector<size_t> basis_;  // the column that each row gives a value to
};

}  // namespace

Packing solve_packing(const std::vector<std::vector<double>>& columns) {
  Tableau tableau(columns);
  tableau.solve();
  return tableau.result();
}

}  // namespace jige::plan
