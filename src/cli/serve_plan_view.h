// How plans of a server are shown, and beside what was measured.
//
// Threads: values.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "sim/load_report.h"
#include "sim/serve_plan_file.h"
#include "sim/serve_planner.h"

namespace jige::cli {

std::string serve_plan_text(const sim::ServePlanRequest& request, const sim::ServePlan& plan,
                            double seconds);
Json plan_json(const sim::ServePlanRequest& request, const sim::ServePlan& plan);

// " with a margin of 7.4 %"; empty without one.
std::string margin_text(const sim::ServeBounds& bounds);
// "itl=61.3,e2e=1230": these bounds times `ratio` as --bound takes them, rounded up.
std::string bounds_flag(const sim::ServeBounds& bounds, double ratio);

// The flags of `jige serve` that are these settings.
std::string settings_flags(const sim::ServeSettings& settings);

// A row a figure: what the plan says, what was measured, and how far off it was.
std::string planned_and_measured_text(const sim::ServePlanFile& plan,
                                      const sim::LoadReport& report);
Json planned_and_measured_json(const sim::ServePlanFile& plan, const sim::LoadReport& report);

}  // namespace jige::cli
