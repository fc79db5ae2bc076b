#include "profile/set_timer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace jige::profile {
namespace {

constexpr int kSizeRuns = 4;  // to find out how much to send
constexpr double kRunsWanted = 12;

using RunOnce = std::function<Result<SetRun>(int64_t bytes)>;

Result<int64_t> find_size(const SetTiming& timing, const RunOnce& run, double& cost_s) {
  int64_t bytes = timing.bytes > 0 ? timing.bytes : timing.probe_bytes;
  const double run_s =
      std::clamp(timing.repeats.seconds_max / kRunsWanted, timing.run_s / 2, timing.run_s);
  for (int attempt = 0; attempt < kSizeRuns; ++attempt) {
    JIGE_TRY(const SetRun first, run(bytes));
    cost_s += first.makespan_s;
    if (timing.bytes > 0 || first.makespan_s >= 0.7 * run_s) break;
    const double grow = std::min(64.0, run_s / first.makespan_s);
    bytes = std::min(timing.bytes_max,
                     static_cast<int64_t>(std::llround(static_cast<double>(bytes) * grow)));
  }
  return bytes;
}

}  // namespace

Result<SetRun> set_run(std::span<const FlowTimes> times) {
  SetRun run;
  int64_t begin = 0, end = 0;
  for (const FlowTimes& t : times) {
    begin = run.member_s.empty() ? t.begin_ns : std::min(begin, t.begin_ns);
    end = run.member_s.empty() ? t.end_ns : std::max(end, t.end_ns);
    run.member_s.push_back(static_cast<double>(t.end_ns - t.begin_ns) * 1e-9);
  }
  run.makespan_s = static_cast<double>(end - begin) * 1e-9;
  const bool plausible =
      run.makespan_s > 0 && std::ranges::all_of(run.member_s, [](double s) { return s > 0; });
  if (!plausible) return fail(Code::kCorrupt, "a run is reported that took no time");
  return run;
}

int64_t member_bytes(int64_t bytes, double share) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(bytes) * share));
}

Status check_cancelled(const std::atomic<bool>* cancelled) {
  if (!cancelled || !*cancelled) return {};
  return fail(Code::kCancelled, "interrupted; --store keeps what was measured");
}

Result<TimedSet> time_set(const SetTiming& timing, std::span<const double> shares,
                          const RunOnce& run_any) {
  const RunOnce run = [&](int64_t bytes) -> Result<SetRun> {
    JIGE_DO(check_cancelled(timing.cancelled));
    return run_any(bytes);
  };
  const StopWatch clock;
  TimedSet timed;
  Measurement& m = timed.measurement;
  JIGE_TRY(timed.bytes, find_size(timing, run, m.cost_s));
  Repeats repeats(timing.repeats);
  std::vector<SetRun> runs;
  while (!repeats.done(clock.seconds())) {
    JIGE_TRY(SetRun one, run(timed.bytes));
    m.cost_s += one.makespan_s;
    repeats.add(one.makespan_s);
    runs.push_back(std::move(one));
  }
  timed.changes = repeats.changes();
  if (timed.changes > 0) {
    log_warn("a rate changed while it was measured; the runs before that do not count");
  }
  runs.erase(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(repeats.dropped()));
  const SeriesSummary summary = repeats.summary();
  const auto whole = static_cast<double>(timed.bytes);
  m.rate = whole / summary.mean / 1e9;
  m.deviation = summary.deviation;
  m.half_width = summary.half_width;
  m.repeats = static_cast<int32_t>(runs.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    double sum = 0;
    for (const SetRun& one : runs) sum += one.member_s[i];
    m.gb_per_s.push_back(whole * shares[i] * static_cast<double>(runs.size()) / sum / 1e9);
  }
  return timed;
}

}  // namespace jige::profile
