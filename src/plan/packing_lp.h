// Fractional packing: how much of each of several things fits at once, when each takes its part of
// shared rows.
//
//   maximise  sum over c of w[c]     with  sum over c of w[c] * columns[c][r] <= 1 in every row r
//
// The prices say what more room in a row would be worth; a column whose parts cost less than 1 at
// these prices would raise the sum. By the simplex method, from the empty packing.
// Threads: pure functions.
#pragma once

#include <vector>

namespace jige::plan {

struct Packing {
  double value = 0;             // the sum of the weights
  std::vector<double> weights;  // of columns, none below 0
  std::vector<double> prices;   // of rows, none below 0; their sum is the value
};

// REQUIRES: columns of equal length, no part below 0, and in each column one above 0.
Packing solve_packing(const std::vector<std::vector<double>>& columns);

}  // namespace jige::plan
