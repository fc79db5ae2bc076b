#include "sim/step_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace jige::sim {
namespace {

using ::testing::HasSubstr;

// What a machine might be: rows are bound by memory up to 12, and by arithmetic beyond.
StepTime planted() {
  return {.base_s = 2e-3,
          .token_s = 6e-5,
          .decode_key_s = 3e-8,
          .pair_s = 2e-9,
          .sequence_s = 4e-6,
          .sampling_s = 5e-4,
          .sampled_row_s = 1e-5,
          .row_segments = {{12, 1e-5}, {64, 3e-5}},
          .sampled_row_segments = {{8, 2e-5}}};
}

StepCell cell_of(std::string kind, const StepFeatures& features, const StepTime& step) {
  const double seconds = step.forward_seconds(features);
  return {.kind = std::move(kind),
          .features = features,
          .seconds = seconds,
          .low_s = seconds,
          .high_s = seconds,
          .runs = 3};
}

std::vector<StepCell> planted_cells(const StepTime& step) {
  std::vector<StepCell> cells;
  for (const int rows : {1, 2, 4, 8, 12, 16, 24, 32, 64}) {
    for (const int context : {16, 256, 900}) {
      StepFeatures decode;
      for (int i = 0; i < rows; ++i) decode.add(context, 1, 1);
      cells.push_back(cell_of("decode", decode, step));
    }
  }
  for (const int rows : {8, 16, 32, 64, 128, 256, 512}) {
    for (const int context : {0, 512}) {
      for (const int sampled : {0, 1}) {
        StepFeatures prompt;
        prompt.add(context, rows, sampled);
        cells.push_back(cell_of(sampled ? "prompt" : "piece", prompt, step));
        prompt.add(100, 1, 1);
        prompt.add(300, 1, 1);
        cells.push_back(cell_of("mixed", prompt, step));
      }
    }
  }
  return cells;
}

TEST(StepFit, FindsWhatWasPlanted) {
  const StepTime step = planted();
  const auto fit =
      fit_step_time(planted_cells(step),
                    {.row_knots = {12, 64}, .sampled_row_knots = {8}, .decode_key_knots = {}});
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_NEAR(fit->base_s / step.base_s, 1, 1e-3);
  EXPECT_NEAR(fit->token_s / step.token_s, 1, 1e-3);
  EXPECT_NEAR(fit->decode_key_s / step.decode_key_s, 1, 1e-2);
  EXPECT_NEAR(fit->pair_s / step.pair_s, 1, 1e-3);
  EXPECT_NEAR(fit->sequence_s / step.sequence_s, 1, 1e-2);
  EXPECT_NEAR(fit->sampling_s / step.sampling_s, 1, 1e-3);
  EXPECT_NEAR(fit->sampled_row_s / step.sampled_row_s, 1, 1e-2);
  ASSERT_EQ(fit->row_segments.size(), 2u);
  EXPECT_NEAR(fit->row_segments[0].unit_s / step.row_segments[0].unit_s, 1, 1e-2);
  ASSERT_EQ(fit->sampled_row_segments.size(), 1u);
  EXPECT_NEAR(fit->sampled_row_segments[0].unit_s / step.sampled_row_segments[0].unit_s, 1, 1e-2);
  EXPECT_NEAR(fit->row_segments[1].unit_s / step.row_segments[1].unit_s, 1, 1e-2);
}

TEST(StepFit, ForeseesCellsThatItHasNotSeen) {
  const auto errors = held_out_errors(planted_cells(planted()), {});
  ASSERT_TRUE(errors);
  EXPECT_EQ(errors->all.cells, std::ssize(planted_cells(planted())));
  EXPECT_LT(errors->all.mean, 0.01);
  EXPECT_LT(std::abs(errors->all.worst), 0.1);
  EXPECT_EQ(errors->kinds.size(), 4u);
  EXPECT_EQ(errors->kinds.at("decode").cells, 27);
}

// Where layers stream to a GPU, an iteration takes what their copies take, or its computations
// where these take longer: the rows' function bends there.
TEST(StepFit, ForeseesIterationsThatWaitForCopies) {
  for (const double copies_s : {4e-3, 8e-3, 20e-3}) {
    std::vector<StepCell> cells = planted_cells(planted());
    for (StepCell& cell : cells) {
      cell.seconds = std::max(copies_s, cell.seconds);
      cell.low_s = cell.high_s = cell.seconds;
    }
    const auto errors = held_out_errors(cells, {});
    ASSERT_TRUE(errors);
    EXPECT_LT(errors->all.mean, 0.05) << copies_s;
    EXPECT_LT(errors->kinds.at("decode").mean, 0.05) << copies_s;
  }
}

// Nine cells in ten as the model says, or faster.
TEST(StepFit, TheMarginKeepsBoundsWhereCellsAreSlower) {
  std::vector<double> errors(100);
  for (size_t i = 0; i < errors.size(); ++i) errors[i] = 0.001 * static_cast<double>(i) - 0.02;
  // By how much longer they took, one after the other.
  std::vector<double> slower;
  for (const double error : errors) slower.push_back(1 / (1 + error) - 1);
  const StepError all = step_error(errors);
  EXPECT_EQ(all.cells, 100);
  EXPECT_NEAR(all.worst, 0.079, 1e-12);
  EXPECT_GT(all.slower, 0);
  EXPECT_EQ(std::ranges::count_if(slower, [&](double one) { return one >= all.slower; }), 10);
  const StepErrors held_out{.all = all};
  EXPECT_NEAR((1 - held_out.margin()) * (1 + all.slower), 1, 1e-12);
  for (double& error : errors) error += 0.1;  // a model that is too slow needs none
  EXPECT_EQ(step_error(errors).slower, 0);
  EXPECT_EQ(step_error({}).slower, 0);
  // Half of what was measured: as long again.
  EXPECT_DOUBLE_EQ(step_error({-0.5}).slower, 1);
  EXPECT_DOUBLE_EQ(StepErrors{.all = {.slower = 1}}.margin(), 0.5);
}

TEST(StepFit, IsNeverNegativeAndNeverFallsWithMoreWork) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng(seed);
    std::vector<StepCell> cells = planted_cells(planted());
    for (StepCell& cell : cells) cell.seconds *= std::exp(rng.normal());  // nearly no sense in it
    const auto fit = fit_step_time(cells, {});
    ASSERT_TRUE(fit);
    for (const double term :
         {fit->base_s, fit->token_s, fit->kv_token_s, fit->pair_s, fit->sequence_s, fit->sampling_s,
          fit->sampled_row_s, fit->decode_key_s}) {
      EXPECT_GE(term, 0) << seed;
    }
    double before = 0;
    for (int rows = 1; rows <= 600; ++rows) {
      EXPECT_GE(fit->rows_seconds(rows), before) << seed << ", " << rows << " rows";
      before = fit->rows_seconds(rows);
    }
    double end = 0;
    for (const StepSegment& segment : fit->row_segments) {
      EXPECT_GT(segment.end, end);
      end = segment.end;
      EXPECT_GE(segment.unit_s, 0);
    }
  }
}

TEST(StepFit, PassesOverKnotsThatNoCellTells) {
  StepFeatures one, two;
  one.add(0, 5, 0);
  two.add(0, 100, 0);
  const std::vector<StepCell> cells = {cell_of("piece", one, planted()),
                                       cell_of("piece", two, planted())};
  const auto fit = fit_step_time(cells, {.row_knots = {2, 4, 8, 16, 64, 128, 256}});
  ASSERT_TRUE(fit);
  ASSERT_EQ(fit->row_segments.size(), 1u);
  EXPECT_EQ(fit->row_segments[0].end, 8);
}

TEST(StepFit, RefusesWhatIsNoTime) {
  EXPECT_FALSE(fit_step_time({}, {}));
  std::vector<StepCell> cells = planted_cells(planted());
  cells[3].seconds = 0;
  EXPECT_THAT(fit_step_time(cells, {}).error().message, HasSubstr("above 0"));
  cells[3].seconds = NAN;
  EXPECT_FALSE(held_out_errors(cells, {}));
}

// Against a search over all sets of columns that may be above 0.
TEST(NonNegative, IsTheBestOfAllSets) {
  Rng rng(7);
  for (int trial = 0; trial < 60; ++trial) {
    constexpr size_t kColumns = 4;
    std::vector<std::vector<double>> rows(9, std::vector<double>(kColumns + 1));
    for (auto& row : rows) {
      for (double& value : row) value = rng.normal();
    }
    const auto squares = [&](const std::vector<double>& x) {
      double sum = 0;
      for (const auto& row : rows) {
        double rest = row[kColumns];
        for (size_t i = 0; i < kColumns; ++i) rest -= row[i] * x[i];
        sum += rest * rest;
      }
      return sum;
    };
    const std::vector<double> found = solve_non_negative(rows);
    double best = squares(std::vector<double>(kColumns));
    // Coordinate descent from 0 within each set comes to the set's optimum.
    for (unsigned set = 1; set < 1u << kColumns; ++set) {
      std::vector<double> x(kColumns);
      for (int sweep = 0; sweep < 300; ++sweep) {
        for (size_t i = 0; i < kColumns; ++i) {
          if (!(set >> i & 1)) continue;
          double above = 0, below = 0;
          for (const auto& row : rows) {
            double rest = row[kColumns];
            for (size_t j = 0; j < kColumns; ++j) rest -= j == i ? 0 : row[j] * x[j];
            above += rest * row[i];
            below += row[i] * row[i];
          }
          x[i] = std::max(0.0, above / below);
        }
      }
      best = std::min(best, squares(x));
    }
    for (const double value : found) EXPECT_GE(value, 0);
    EXPECT_NEAR(squares(found), best, 1e-6 * (1 + best)) << trial;
  }
}

}  // namespace
}  // namespace jige::sim
