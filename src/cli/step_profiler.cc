#include "cli/step_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/filled_cache.h"
#include "cli/interrupt.h"
#include "cli/profiled_subject.h"
#include "sim/load_report.h"

namespace jige::cli {
namespace {

using serve::StepShape;

constexpr int64_t kQuietRunsMin = 3;
constexpr int64_t kManyRows = 128;  // take long: one turn a visit

struct DecodeRow {
  int32_t rows;
  int detail;
};
// Products of few rows have several forms, by their count; the time bends where one follows
// another.
constexpr DecodeRow kDecodeRows[] = {
    {1, 0},  {2, 0},  {3, 2},  {4, 0},  {5, 2},   {6, 1},   {7, 2},  {8, 0},  {9, 2},
    {10, 1}, {11, 2}, {12, 1}, {13, 2}, {14, 2},  {15, 2},  {16, 0}, {17, 2}, {18, 2},
    {20, 1}, {22, 2}, {24, 1}, {28, 2}, {32, 0},  {33, 2},  {36, 2}, {40, 1}, {48, 1},
    {56, 2}, {64, 0}, {80, 2}, {96, 1}, {128, 0}, {192, 1}, {256, 0}};
struct PromptRow {
  int32_t rows;
  int detail;
};
constexpr PromptRow kPromptRows[] = {{4, 1},   {8, 1},   {16, 0},  {24, 2},  {32, 0},   {40, 2},
                                     {48, 1},  {56, 2},  {64, 0},  {80, 2},  {96, 1},   {112, 2},
                                     {128, 0}, {160, 2}, {192, 1}, {224, 2}, {256, 0},  {320, 2},
                                     {384, 1}, {448, 2}, {512, 0}, {768, 1}, {1024, 0}, {2048, 0}};

class Grid {
 public:
  Grid(const model::InferenceSizes& sizes, int detail) : sizes_(sizes), detail_(detail) {}

  std::vector<StepGridCell> make() {
    const auto far = static_cast<int32_t>(context_max() - kStepTurns - 8);
    for (const auto& [rows, detail] : kDecodeRows) {
      add("decode", {.decode_rows = rows, .decode_context = std::min(64, far)}, detail);
      if (detail > 1) continue;
      const int64_t share = sizes_.kv_block_count / rows * ops::kKvBlockTokens - 16;
      const auto deep = static_cast<int32_t>(std::min<int64_t>({far, 1024, share}));
      add("decode", {.decode_rows = rows, .decode_context = deep}, detail);
      add("decode", {.decode_rows = rows, .decode_context = deep / 3}, detail + 1);
    }
    for (const auto& [rows, detail] : kPromptRows) {
      add("prompt", {.prompt_count = 1, .prompt_rows = rows}, detail);
      const int32_t deep = far / 2 / rows * rows;
      if (detail > 1 || deep < rows) continue;
      add("piece", {.prompt_count = 1, .prompt_rows = rows, .piece = true}, detail);
      add("piece", {.prompt_count = 1, .prompt_rows = rows, .prompt_context = deep, .piece = true},
          detail + 1);
    }
    for (const int32_t count : {2, 4, 8, 16}) {
      for (const int32_t rows : {8, 32, 64, 128}) {
        add("prompt", {.prompt_count = count, .prompt_rows = rows}, count == 4 ? 1 : 2);
      }
    }
    add_mixed(far);
    return std::move(cells_);
  }

 private:
  int64_t context_max() const {
    return std::min(sizes_.context_max, sizes_.kv_block_count * ops::kKvBlockTokens);
  }

  // Next tokens beside a prompt that fills the forward to a round count of rows.
  void add_mixed(int32_t far) {
    for (const int32_t decode : {1, 4, 12, 24, 48}) {
      for (const int32_t all : {32, 64, 128, 256, 512}) {
        const bool coarse = decode == 12 && (all == 64 || all == 256);
        const StepShape shape{.decode_rows = decode,
                              .decode_context = std::min(200, far),
                              .prompt_count = 1,
                              .prompt_rows = all - decode};
        if (all <= decode) continue;
        add("mixed", shape, coarse ? 0 : decode == 4 || decode == 24 ? 1 : 2);
      }
    }
  }

  void add(const char* kind, const StepShape& shape, int detail) {
    if (detail > detail_ || !serve::holds_steps(sizes_, shape, kStepTurns)) return;
    cells_.push_back({kind, shape, detail});
  }

  const model::InferenceSizes& sizes_;
  const int detail_;
  std::vector<StepGridCell> cells_;
};

// What turns of a cell took.
struct CellRuns {
  StepGridCell cell;
  sim::StepFeatures sums = {};
  std::vector<double> seconds = {};    // of turns that nobody disturbed
  std::vector<double> disturbed = {};  // and of the others
  double visit_s = 0;                  // of the last visit, with what is not timed

  sim::StepCell result() const {
    const int64_t run_count = std::ssize(seconds) + std::ssize(disturbed);
    sim::StepCell made{.kind = cell.kind, .runs = run_count, .disturbed = std::ssize(disturbed)};
    const auto runs = static_cast<double>(run_count);
    made.features = {.rows = sums.rows / runs,
                     .sampled_rows = sums.sampled_rows / runs,
                     .sequences = sums.sequences / runs,
                     .kv_tokens = sums.kv_tokens / runs,
                     .decode_keys = sums.decode_keys / runs,
                     .pairs = sums.pairs / runs};
    std::vector<double> sorted = seconds;
    if (std::ssize(sorted) < kQuietRunsMin) {
      sorted.insert(sorted.end(), disturbed.begin(), disturbed.end());
    }
    std::ranges::sort(sorted);
    made.seconds = sim::quantile(sorted, 0.5);
    made.low_s = sim::quantile(sorted, 0.25);
    made.high_s = sim::quantile(sorted, 0.75);
    return made;
  }
};

// All turns of a cell beside its usual time, the disturbed ones too: who serves has those. Of few
// turns nothing is known.
void add_turns(const CellRuns& runs, double usual_s, std::vector<sim::TimedTurn>& turns) {
  if (std::ssize(runs.seconds) + std::ssize(runs.disturbed) < kQuietRunsMin) return;
  for (const std::vector<double>* some : {&runs.seconds, &runs.disturbed}) {
    for (const double seconds : *some) turns.push_back({usual_s, seconds});
  }
}

std::string note_of(const StepGridCell& cell) {
  const StepShape& shape = cell.shape;
  if (shape.prompt_count == 0) {
    return fmt::format("{} next tokens behind {}", shape.decode_rows, shape.decode_context);
  }
  return fmt::format("{}: {} next tokens, {} x {} of prompts behind {}", cell.kind,
                     shape.decode_rows, shape.prompt_count, shape.prompt_rows,
                     shape.prompt_context);
}

class StepProfiler {
 public:
  StepProfiler(BenchServeModel& served, const StepProfileOptions& options)
      : served_(served),
        options_(options),
        meter_(*served.model, *served.tokenizer, &served.devices.team()) {}

  struct Measured {
    std::vector<sim::StepCell> cells;  // of the grid
    sim::StepNoise noise;
  };
  Result<Measured> measure() {
    const model::InferenceSizes& sizes = served_.model->sizes();
    JIGE_DO(fill_cache(*served_.model, sizes.kv_block_count * ops::kKvBlockTokens));
    for (const StepGridCell& cell : step_grid(sizes, 0)) runs_.push_back({cell});
    JIGE_DO(visit_all(-1));  // warms up, and tells how long a round takes
    choose_detail();
    for (CellRuns& one : runs_) {
      one = {.cell = one.cell};
    }
    double round_s = 0;
    for (int64_t round = 0; round == 0 || watch_.seconds() + round_s < options_.seconds; ++round) {
      const StopWatch round_watch;
      JIGE_DO(visit_all(round));
      round_s = round_watch.seconds();
    }
    Measured measured;
    std::vector<sim::TimedTurn> turns;
    for (const CellRuns& one : runs_) {
      measured.cells.push_back(one.result());
      add_turns(one, measured.cells.back().seconds, turns);
    }
    measured.noise = sim::noise_of(std::move(turns));
    return measured;
  }

 private:
  double sum_of_visits() const {
    double all_s = 0;
    for (const CellRuns& one : runs_) all_s += one.visit_s;
    return all_s;
  }

  // The finest grid of which two rounds fit into the time, by the coarsest's.
  void choose_detail() {
    const double left_s = options_.seconds - watch_.seconds();
    const auto coarse_s = sum_of_visits() / static_cast<double>(runs_.size());
    const model::InferenceSizes& sizes = served_.model->sizes();
    for (int detail = kStepGridDetailMax; detail > 0; --detail) {
      const std::vector<StepGridCell> grid = step_grid(sizes, detail);
      if (2 * coarse_s * static_cast<double>(grid.size()) > left_s) continue;
      runs_.clear();
      for (const StepGridCell& cell : grid) runs_.push_back({cell});
      return;
    }
  }

  Status visit_all(int64_t round) {
    std::vector<size_t> order(runs_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    Rng rng(derive_key(1, "step profile", static_cast<uint64_t>(round)));
    rng.shuffle(std::span(order));
    for (const size_t i : order) {
      if (options_.cancel && options_.cancel->load(std::memory_order_relaxed)) {
        return fail(Code::kCancelled, "by a signal");
      }
      if (options_.on_progress) options_.on_progress(watch_.seconds(), note_of(runs_[i].cell));
      JIGE_DO(visit(runs_[i]));
    }
    return {};
  }

  Status visit(CellRuns& runs) {
    const StopWatch watch;
    const int32_t turns = runs.cell.shape.rows() < kManyRows ? kStepTurns : 1;
    JIGE_DO(meter_.run(runs.cell.shape, turns, [&](const serve::StepMeter::Turn& turn) {
      for (const plan::WorkItem& item : turn.batch.items) {
        runs.sums.add(item.context_count, std::ssize(item.tokens), item.sample_rows());
      }
      (turn.disturbed ? runs.disturbed : runs.seconds).push_back(turn.seconds);
    }));
    runs.visit_s = watch.seconds();
    return {};
  }

  BenchServeModel& served_;
  const StepProfileOptions& options_;
  serve::StepMeter meter_;
  const StopWatch watch_;
  std::vector<CellRuns> runs_;
};

}  // namespace

std::vector<StepGridCell> step_grid(const model::InferenceSizes& sizes, int detail) {
  return Grid(sizes, detail).make();
}

Result<sim::StepProfile> profile_steps(BenchServeModel& served, const StepProfileOptions& options) {
  const model::InferenceSizes& sizes = served.model->sizes();
  if (sizes.state_count > 0 || sizes.embeds) {
    return fail(Code::kUnsupported,
                "{}: iterations are measured of models that answer and have no recurrent layers",
                served.text);
  }
  sim::StepProfile profile{.subject = profiled_subject(served.devices, *served.model, served.text)};
  JIGE_TRY(StepProfiler::Measured measured, StepProfiler(served, options).measure());
  profile.cells = std::move(measured.cells);
  const sim::StepFitOptions fit{
      .limits = {.rows_max = sizes.batch_tokens_max, .sample_rows_max = sizes.logit_rows_max}};
  JIGE_TRY(profile.held_out, sim::held_out_errors(profile.cells, fit));
  JIGE_TRY(profile.step, sim::fit_step_time(profile.cells, fit));
  profile.step.noise = std::move(measured.noise);
  return profile;
}

Result<sim::StepProfile> show_profiling(BenchServeModel& served, double seconds, bool quiet) {
  const auto tenths = static_cast<int64_t>(seconds * 10);
  Progress progress("iterations", tenths, quiet);
  const auto show = [&](double done_s, const std::string& note) {
    progress.update(std::min(static_cast<int64_t>(done_s * 10), tenths), note);
  };
  Result<sim::StepProfile> profile =
      profile_steps(served, {.seconds = seconds, .cancel = &interrupt_flag(), .on_progress = show});
  progress.finish("");
  return profile;
}

void warn_of_error(const sim::StepProfile& profile) {
  const double error = profile.held_out.all.mean;
  if (error <= sim::kStepErrorMax) return;
  log_warn(
      "the profile's fit is {:.0f} % off on cells that it has not seen, above {:.0f} %: no plan "
      "should rest on it; measure again while nothing else runs, or longer (--seconds)",
      100 * error, 100 * sim::kStepErrorMax);
}

}  // namespace jige::cli
