#include "cli/run_report.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/xml_text.h"
#include "cli/line_chart.h"
#include "cli/report_pipeline.h"

namespace jige::cli {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kStyle =
    "body{font-family:system-ui,sans-serif;color:#24292f;background:#f6f8fa;margin:24px auto;"
    "max-width:1240px;padding:0 16px}"
    "h1{font-size:24px}h2{font-size:18px;margin-top:32px}p{color:#57606a}"
    "table{border-collapse:collapse;background:#fff}td{border:1px solid #d8dee4;padding:4px 12px}"
    "td+td{font-variant-numeric:tabular-nums}"
    "figure{margin:12px 0;overflow-x:auto;background:#fff;border:1px solid #d8dee4;"
    "border-radius:8px;padding:8px}svg{max-width:100%;height:auto;display:block}";

// The last number of a curve, and of which step it is where the last step has none, with the
// reason.
std::string last_number(const std::vector<ChartPoint>& points, std::string_view why) {
  const ChartPoint& last = points.back();
  if (std::isfinite(last.y)) return fmt::format("{:.4f}", last.y);
  std::string text = fmt::format("none in step {:g}, {}", last.x, why);
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    if (!std::isfinite(point->y)) continue;
    return text + fmt::format("; {:.4f} in step {:g}", point->y, point->x);
  }
  return text;
}

std::string last_loss(const RunLog& log) {
  return last_number(log.training, log.last_skipped
                                       ? "which was skipped as its gradients were not finite"
                                   : log.last_learned ? "as it is not finite"
                                                      : "in which nothing was learned");
}

// Of a measurement before the last one; else empty.
std::string least_loss(const std::vector<ChartPoint>& points) {
  const ChartPoint* least = nullptr;
  for (const ChartPoint& point : points) {
    if (std::isfinite(point.y) && (least == nullptr || point.y < least->y)) least = &point;
  }
  if (least == nullptr || least == &points.back()) return "";
  return fmt::format("{:.4f} in step {:g}", least->y, least->x);
}

Facts run_facts(const RunLog& log) {
  Facts facts;
  if (log.parameters > 0) {
    facts.emplace_back("parameters", format_count(static_cast<double>(log.parameters)));
  }
  std::string steps = fmt::format("{}", log.training.size());
  if (log.steps_planned > 0) steps += fmt::format(" of {}", log.steps_planned);
  facts.emplace_back("steps", steps + (log.ended ? "" : ", not ended"));
  facts.emplace_back("last loss", last_loss(log));
  if (!log.held_out.empty()) {
    facts.emplace_back("last loss on held-out data",
                       last_number(log.held_out, "as it is not finite"));
    if (const std::string least = least_loss(log.held_out); !least.empty()) {
      facts.emplace_back("least", least);
    }
  }
  if (log.model_step > 0 && !log.training.empty() &&
      static_cast<double>(log.model_step) < log.training.back().x) {
    facts.emplace_back("the model's weights", fmt::format("of step {}", log.model_step));
  }
  if (const auto& accuracy = log.preference.accuracy; !accuracy.empty()) {
    facts.emplace_back("last margin", fmt::format("{:.4f}", log.preference.margin.back().y));
    facts.emplace_back("last accuracy", fmt::format("{:.1f} %", accuracy.back().y));
  }
  if (const RewardCurves& rewards = log.rewards; !rewards.reward.empty()) {
    std::string last = fmt::format("{:.4f}", rewards.reward.back().y);
    const auto add = [&](const char* form, const std::vector<ChartPoint>& points) {
      if (!points.empty()) last += fmt::format(fmt::runtime(form), points.back().y);
    };
    add(", full marks {:.1f} %", rewards.full_share);
    add(", by lengths {:+.4f}", rewards.length_reward);
    facts.emplace_back("last reward", last);
  }
  if (const auto& reward = log.rewards_held_out.reward; !reward.empty()) {
    facts.emplace_back("held-out reward, first and last",
                       fmt::format("{:.4f}, {:.4f}", reward.front().y, reward.back().y));
  }
  if (const auto& busiest = log.experts.busiest; !busiest.empty()) {
    facts.emplace_back("busiest expert, over equal use",
                       fmt::format("{:.2f}, mean of layers {:.2f}", busiest.back().y,
                                   log.experts.busiest_mean.back().y));
  }
  if (const auto& balance = log.experts.balance_loss; !balance.empty()) {
    facts.emplace_back("last loss for unequal use", fmt::format("{:.4f}", balance.back().y));
  }
  if (log.tokens > 0) facts.emplace_back("tokens", format_count(log.tokens));
  if (log.seconds > 0) facts.emplace_back("time of the steps", format_duration(log.seconds));
  if (!log.cpu.empty()) {
    facts.emplace_back("machine", fmt::format("{}, {} threads", log.cpu, log.threads));
  }
  if (!log.version.empty()) facts.emplace_back("jige", log.version);
  return facts;
}

Facts memory_facts(const RunLog& log) {
  Facts facts;
  const auto add = [&](const char* name, int64_t bytes) {
    if (bytes > 0) facts.emplace_back(name, format_bytes(bytes));
  };
  add("arenas, planned", log.arena_predicted_bytes);
  add("arenas, at the peak", log.arena_peak_bytes);
  add("process, predicted", log.memory_predicted_bytes);
  add("process, at the peak", log.memory_peak_bytes);
  add("limit", log.memory_limit_bytes);
  return facts;
}

Facts rank_facts(const RunLog& log) {
  Facts facts;
  if (log.wait_s.empty()) return facts;
  const auto steps = static_cast<double>(log.wait_s.size());
  facts.emplace_back("ranks", fmt::format("{}", log.ranks));
  facts.emplace_back("waited a step, rank 0", fmt::format("{:.4f} s", log.wait_total_s / steps));
  facts.emplace_back("waited a step, the rank that waited longest",
                     fmt::format("{:.4f} s", log.wait_max_total_s / steps));
  facts.emplace_back("sent a step by rank 0",
                     format_bytes(static_cast<int64_t>(log.sent_bytes / steps)));
  return facts;
}

std::string table(const Facts& facts) {
  std::string html = "<table>\n";
  for (const auto& [name, value] : facts) {
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", xml_text(name), xml_text(value));
  }
  return html + "</table>\n";
}

std::string figure(const std::string& svg) { return "<figure>\n" + svg + "</figure>\n"; }

std::string heading(const std::string& text) {
  return fmt::format("<h2>{}</h2>\n", xml_text(text));
}

std::string pipeline_sections(const PipelineView& view) {
  std::string html = heading("A step") + table(pipeline_facts(view)) + heading("Timeline");
  html += figure(timelines_svg(view, false));
  if (view.has_measured()) html += figure(timelines_svg(view, true));
  html += heading("Where the devices' time goes");
  html +=
      "<p>Shares of the step. Ramp: other devices' passes, before the first or after the last pass "
      "here; turn: those in between; transfer stall: fetches, gradients and messages on their way; "
      "optimizer tail: updates that passes or the end of the step wait for; starting tasks: from "
      "the end of what a task waited for to its start. Logical devices share one machine's cores: "
      "passes that run at once slow one another down, which no prediction here knows.</p>\n";
  html += figure(split_svg(view));
  html += heading("Memory over a step") + figure(memory_svg(view));
  return html;
}

std::string speed_figure(const RunLog& log) {
  LineChart chart{.title = "Speed", .x_label = "step", .y_label = "tokens per second"};
  chart.series = {{.name = "", .color = "#b6d4fe", .stroke = 1.2, .points = log.tokens_per_s},
                  {.name = "mean", .color = "#1f6feb", .points = smoothed(log.tokens_per_s)}};
  return figure(render_svg(chart));
}

std::string preference_sections(const RunLog& log) {
  std::string html = heading("Preferences");
  for (const LineChart& chart : preference_charts(log)) html += figure(render_svg(chart));
  return html;
}

std::string reward_sections(const RunLog& log) {
  std::string html =
      heading("Rewards") +
      "<p>Of answers that were drawn to learn from; held-out: of greedy ones. A group "
      "without signal has the same reward for all its answers.</p>\n";
  for (const LineChart& chart : reward_charts(log)) html += figure(render_svg(chart));
  return html;
}

std::string expert_sections(const RunLog& log) {
  return heading("Experts") +
         "<p>Tokens that chose the busiest expert of a layer, over those that each expert would "
         "have if all were used alike.</p>\n" +
         figure(render_svg(expert_chart(log)));
}

std::string rank_sections(const RunLog& log) {
  LineChart chart{.title = "Exposed communication", .x_label = "step", .y_label = "seconds"};
  chart.series = {
      {.name = "rank 0", .color = "#1f6feb", .points = smoothed(log.wait_s)},
      {.name = "longest of all", .color = "#d1570a", .points = smoothed(log.wait_max_s)}};
  return heading("Ranks") + table(rank_facts(log)) +
         "<p>Time of a step in which a rank computed nothing, for lack of what others send: "
         "communication that the passes did not hide, and others' work that was not done "
         "yet.</p>\n" +
         figure(render_svg(chart));
}

}  // namespace

Result<std::string> run_report_html(const std::string& title, const RunLog& log,
                                    const std::optional<train::PipelineRecord>& record) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      xml_text(title), kStyle);
  html += table(run_facts(log)) + heading("Loss") + figure(render_svg(loss_chart(log, "Loss")));
  if (!log.preference.margin.empty()) html += preference_sections(log);
  if (!log.rewards.reward.empty()) html += reward_sections(log);
  if (!log.experts.busiest.empty()) html += expert_sections(log);
  html += speed_figure(log);
  if (!log.wait_s.empty()) html += rank_sections(log);
  if (record) {
    JIGE_TRY(const PipelineView view, view_pipeline(*record));
    html += pipeline_sections(view);
  }
  if (const Facts facts = memory_facts(log); !facts.empty()) {
    html += heading("Memory of the process") + table(facts);
  }
  return html + "</body>\n</html>\n";
}

}  // namespace jige::cli
