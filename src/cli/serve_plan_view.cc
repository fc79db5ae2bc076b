#include "cli/serve_plan_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/counted.h"
#include "cli/table.h"

namespace jige::cli {
namespace {

std::string plan_ms(double seconds) {
  const double ms = seconds * 1000;
  return ms < 1000 ? fmt::format("{:.3g}", ms) : fmt::format("{:.0f}", ms);
}

struct ShownBound {
  const char* name;
  std::optional<double> sim::ServeBounds::*bound;
  sim::ServeFigure sim::ServePrediction::*figure;
};
constexpr ShownBound kShownBounds[] = {
    {"ttft", &sim::ServeBounds::ttft_s, &sim::ServePrediction::ttft_s},
    {"itl", &sim::ServeBounds::itl_s, &sim::ServePrediction::itl_s},
    {"tpot", &sim::ServeBounds::tpot_s, &sim::ServePrediction::tpot_s},
    {"e2e", &sim::ServeBounds::e2e_s, &sim::ServePrediction::e2e_s}};

// "  bounds with a margin of 7.4 %: itl 44.1 of 46.3 ms, at the quantile 0.995\n"
std::string bounds_text(const sim::ServeBounds& bounds, const sim::ServePrediction& one) {
  std::vector<std::string> all;
  for (const ShownBound& shown : kShownBounds) {
    const std::optional<double>& bound = bounds.*shown.bound;
    if (!bound) continue;
    const bool gaps = shown.bound == &sim::ServeBounds::itl_s;
    all.push_back(fmt::format(
        "{} {} of {} ms at the quantile {:.4g}", shown.name, plan_ms((one.*shown.figure).bounded),
        plan_ms(*bound * (1 - bounds.margin)), gaps ? bounds.gap_quantile() : bounds.quantile));
  }
  return fmt::format("  bounds{}: {}\n", margin_text(bounds), fmt::join(all, ", "));
}

// What a plan says of a figure, and what came of it.
struct PlannedFigure {
  const char* name;
  const char* json;
  double planned = 0, measured = 0;
  bool is_time = false;
};

std::vector<PlannedFigure> planned_figures(const sim::ServePrediction& planned,
                                           const sim::LoadReport& report) {
  std::vector<PlannedFigure> figures = {
      {"requests/s", "requests_per_s", planned.requests_per_s, report.requests_per_s},
      {"tokens/s", "output_tokens_per_s", planned.output_tokens_per_s, report.output_tokens_per_s}};
  const auto add = [&](const char* mean, const char* mean_json, const char* p99,
                       const char* p99_json, const sim::ServeFigure& of, const sim::Summary& is) {
    figures.push_back({mean, mean_json, of.mean, is.mean, true});
    figures.push_back({p99, p99_json, of.p99, is.p99, true});
  };
  add("TTFT, mean ms", "ttft_mean_s", "TTFT, p99 ms", "ttft_p99_s", planned.ttft_s, report.ttft_s);
  add("ITL, mean ms", "itl_mean_s", "ITL, p99 ms", "itl_p99_s", planned.itl_s, report.itl_s);
  add("TPOT, mean ms", "tpot_mean_s", "TPOT, p99 ms", "tpot_p99_s", planned.tpot_s, report.tpot_s);
  add("E2E, mean ms", "e2e_mean_s", "E2E, p99 ms", "e2e_p99_s", planned.e2e_s, report.e2e_s);
  return figures;
}

void add_row(Table& table, const char* what, const sim::ServePrediction& one, bool bounds) {
  std::vector<std::string> cells = {what,
                                    sim::settings_text(one.settings),
                                    fmt::format("{:.3g}", one.requests_per_s),
                                    fmt::format("{:.4g}", one.output_tokens_per_s),
                                    plan_ms(one.ttft_s.p99),
                                    plan_ms(one.itl_s.p99),
                                    plan_ms(one.tpot_s.p99),
                                    plan_ms(one.e2e_s.mean),
                                    plan_ms(one.e2e_s.p99)};
  if (bounds) cells.emplace_back(one.keeps_bounds() ? "yes" : "no");
  table.row(std::move(cells));
}

Json setting_json(const sim::ServePrediction& one) {
  Json json{{"settings", sim::settings_json(one.settings)},
            {"prediction", sim::prediction_json(one)},
            {"keeps_bounds", one.keeps_bounds()}};
  if (std::isfinite(one.ratio)) json["ratio_to_bounds"] = one.ratio;
  return json;
}

}  // namespace

std::string margin_text(const sim::ServeBounds& bounds) {
  if (bounds.margin == 0) return "";
  return fmt::format(" with a margin of {:.1f} %", 100 * bounds.margin);
}

std::string bounds_flag(const sim::ServeBounds& bounds, double ratio) {
  std::string flag;
  for (const ShownBound& shown : kShownBounds) {
    const std::optional<double>& bound = bounds.*shown.bound;
    if (!bound) continue;
    const double bound_ms = *bound * ratio * 1000;
    const double step = std::pow(10, std::floor(std::log10(bound_ms)) - 2);
    flag += fmt::format("{}{}={:.12g}", flag.empty() ? "" : ",", shown.name,
                        std::ceil(bound_ms / step) * step);
  }
  return flag;
}

std::string settings_flags(const sim::ServeSettings& settings) {
  std::string text = fmt::format("--policy {} --max-batch {}", plan::policy_name(settings.policy),
                                 settings.batch_requests_max);
  if (settings.policy == plan::ServePolicy::kChunked) {
    text += fmt::format(" --batch-tokens {}", settings.batch_tokens_max);
  }
  if (settings.policy == plan::ServePolicy::kRounds) {
    text += fmt::format(" --round-prompts {} --round-steps {}", settings.round_prompts,
                        settings.round_steps);
  }
  return text;
}

std::string serve_plan_text(const sim::ServePlanRequest& request, const sim::ServePlan& plan,
                            double seconds) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{},
                                        {"setting"},
                                        {"requests/s", kRight},
                                        {"tokens/s", kRight},
                                        {"TTFT p99 ms", kRight},
                                        {"ITL p99", kRight},
                                        {"TPOT p99", kRight},
                                        {"E2E mean", kRight},
                                        {"p99", kRight}};
  const bool bounds = request.bounds.any();
  if (bounds) columns.push_back({"keeps bounds"});
  Table table(std::move(columns));
  if (plan.chosen) add_row(table, "chosen", *plan.chosen, bounds);
  if (plan.nearest) add_row(table, "nearest", *plan.nearest, bounds);
  if (plan.runner_up) add_row(table, "next", *plan.runner_up, bounds);
  add_row(table, "usual", plan.usual, bounds);
  if (plan.certified) add_row(table, "best of all", *plan.certified, bounds);
  std::string text = table.render();
  text += fmt::format("  {}, {} by formulas, {} simulated, in {:.2g} s\n",
                      counted(plan.settings, "setting"), plan.evaluated, plan.simulated, seconds);
  if (bounds && plan.chosen) text += bounds_text(request.bounds, *plan.chosen);
  if (bounds && plan.nearest) text += bounds_text(request.bounds, *plan.nearest);
  if (!plan.chosen) return text;
  text += fmt::format("  in the way of more: {}\n", plan.binding);
  if (plan.certified) {
    text += fmt::format("  the best of all is {:.2g} % better than what is chosen\n",
                        plan.certified_gain * 100);
  }
  return text + fmt::format("  jige serve FOLDER {}\n", settings_flags(plan.chosen->settings));
}

Json plan_json(const sim::ServePlanRequest& request, const sim::ServePlan& plan) {
  Json json{{"simulated", true}};
  if (request.bounds.any()) json["margin"] = request.bounds.margin;
  if (plan.chosen) json["chosen"] = setting_json(*plan.chosen);
  if (plan.nearest) json["nearest"] = setting_json(*plan.nearest);
  if (plan.runner_up) json["runner_up"] = setting_json(*plan.runner_up);
  json["usual"] = setting_json(plan.usual);
  json["by_policy"] = Json::array();
  for (const sim::ServePrediction& one : plan.by_policy) {
    json["by_policy"].push_back(setting_json(one));
  }
  json["binding"] = plan.binding;
  json["settings"] = plan.settings;
  json["evaluated"] = plan.evaluated;
  json["simulations"] = plan.simulated;
  json["formula_error_max"] = plan.steady_error_max;
  if (plan.certified) {
    json["certified"] = setting_json(*plan.certified);
    json["certified_gain"] = plan.certified_gain;
  }
  return json;
}

std::string planned_and_measured_text(const sim::ServePlanFile& plan,
                                      const sim::LoadReport& report) {
  using enum Table::Align;
  Table table({{"planned and measured"},
               {"planned", kRight},
               {"measured", kRight},
               {"difference", kRight}});
  for (const PlannedFigure& one : planned_figures(plan.prediction, report)) {
    const double unit = one.is_time ? 1000 : 1;
    table.row(
        {one.name, fmt::format("{:.3g}", one.planned * unit),
         fmt::format("{:.3g}", one.measured * unit),
         one.planned > 0 ? fmt::format("{:+.1f} %", (one.measured / one.planned - 1) * 100) : ""});
  }
  return table.render();
}

Json planned_and_measured_json(const sim::ServePlanFile& plan, const sim::LoadReport& report) {
  Json json = Json::object();
  for (const PlannedFigure& one : planned_figures(plan.prediction, report)) {
    json[one.json] = {{"planned", one.planned}, {"measured", one.measured}};
  }
  return json;
}

}  // namespace jige::cli
