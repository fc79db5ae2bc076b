#include "cli/plan_progress.h"

#include <fmt/format.h>

#include <cmath>

namespace jige::cli {
namespace {

int64_t milliseconds(double seconds) { return std::llround(seconds * 1e3); }

}  // namespace

PlanProgress::PlanProgress(profile::Profiler& profiler, double budget_s, double shown_after_s,
                           bool quiet)
    : profiler_(profiler),
      before_(profiler.counts()),
      bar_("planning", milliseconds(budget_s), quiet, shown_after_s) {
  profiler_.on_measured([this] { draw(); });
}

PlanProgress::~PlanProgress() { profiler_.on_measured({}); }

Result<profile::CollectiveTimes> PlanProgress::collective(profile::CollectiveMeter& meter,
                                                          const profile::CollectiveTask& task) {
  ++collectives_;
  draw();
  const StopWatch watch;
  auto times = meter.collective(task);
  profiler_.spend(watch.seconds());
  return times;
}

std::string PlanProgress::note() const {
  std::string text =
      fmt::format("sets measured: {}", profiler_.counts().measured - before_.measured);
  if (collectives_ > 0) text += fmt::format(", collectives: {}", collectives_);
  return text;
}

void PlanProgress::draw() {
  bar_.update(milliseconds(profiler_.counts().cost_s - before_.cost_s), note());
}

}  // namespace jige::cli
