#include "cli/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/input.h"

namespace jige::cli {
namespace {

double number_or(const Json& record, const char* field, double fallback) {
  const auto found = record.find(field);
  return found != record.end() && found->is_number() ? found->get<double>() : fallback;
}

int64_t count_or_0(const Json& record, const char* field) {
  const double number = number_or(record, field, 0);
  return number >= 0 && number < 9e18 ? static_cast<int64_t>(number) : 0;
}

std::string text_or_none(const Json& record, const char* field) {
  const auto found = record.find(field);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

// The object in a field, or an empty one.
Json part_of(const Json& record, const char* field) {
  const auto found = record.find(field);
  return found != record.end() && found->is_object() ? *found : Json::object();
}

void take_start(const Json& record, RunLog& log) {
  log.version = text_or_none(record, "version");
  log.cpu = text_or_none(record, "cpu");
  log.threads = count_or_0(record, "threads");
  const Json plan = part_of(record, "plan");
  log.parameters = count_or_0(plan, "parameters");
  log.steps_planned = count_or_0(plan, "steps");
  log.memory_predicted_bytes = count_or_0(plan, "memory_predicted_bytes");
  log.memory_limit_bytes = count_or_0(plan, "memory_limit_bytes");
}

void take_end(const Json& record, RunLog& log) {
  const Json memory = part_of(record, "memory");
  log.memory_peak_bytes = count_or_0(memory, "process_private_peak_bytes");
  log.arena_predicted_bytes = count_or_0(memory, "arena_predicted_bytes");
  log.arena_peak_bytes = count_or_0(memory, "arena_peak_bytes");
  log.ended = true;
  log.model_step = count_or_0(record, "model_step");
}

void take_ranks(const Json& record, double step, RunLog& log) {
  log.ranks = std::max<int64_t>(count_or_0(record, "ranks"), 1);
  if (log.ranks == 1) return;
  log.wait_s.push_back({step, number_or(record, "wait_s", NAN)});
  log.wait_max_s.push_back({step, number_or(record, "wait_max_s", NAN)});
  log.wait_total_s += number_or(record, "wait_s", 0);
  log.wait_max_total_s += number_or(record, "wait_max_s", 0);
  log.sent_bytes += number_or(record, "sent_bytes", 0);
}

void take_preference(const Json& record, double step, PreferenceCurves& curves) {
  if (!record.contains("margin")) return;
  curves.margin.push_back({step, number_or(record, "margin", NAN)});
  curves.accuracy.push_back({step, 100 * number_or(record, "accuracy", NAN)});
  curves.chosen_logprob.push_back({step, number_or(record, "chosen_logprob", NAN)});
  curves.rejected_logprob.push_back({step, number_or(record, "rejected_logprob", NAN)});
}

void take_rewards(const Json& record, double step, RewardCurves& curves) {
  if (!record.contains("reward")) return;
  const auto take = [&](std::vector<ChartPoint>& points, const char* field, double factor = 1) {
    if (record.contains(field)) points.push_back({step, factor * number_or(record, field, NAN)});
  };
  take(curves.reward, "reward");
  take(curves.length_reward, "length_reward");
  take(curves.full_share, "full_share", 100);
  take(curves.silent_share, "silent_share", 100);
  take(curves.cut_share, "cut_share", 100);
  take(curves.answer_tokens, "answer_tokens");
  take(curves.kl, "kl");
  take(curves.clipped_share, "clipped_share", 100);
  take(curves.logprob_gap, "logprob_gap");
  take(curves.draw_s, "draw_s");
  take(curves.score_s, "score_s");
  take(curves.learn_s, "learn_s");
}

void take_experts(const Json& record, double step, ExpertCurves& curves) {
  if (!record.contains("expert_busiest")) return;
  curves.busiest.push_back({step, number_or(record, "expert_busiest", NAN)});
  curves.busiest_mean.push_back({step, number_or(record, "expert_busiest_mean", NAN)});
  if (!record.contains("balance_loss")) return;
  curves.balance_loss.push_back({step, number_or(record, "balance_loss", NAN)});
}

// One measure in training and on held-out pairs.
LineChart both_chart(const std::string& title, const std::string& y_label,
                     const std::vector<ChartPoint>& training,
                     const std::vector<ChartPoint>& held_out) {
  LineChart chart{.title = title, .x_label = "step", .y_label = y_label};
  chart.series = {{.name = "", .color = "#b6d4fe", .stroke = 1.2, .points = training},
                  {.name = "training", .color = "#1f6feb", .points = smoothed(training)},
                  {.name = "held-out",
                   .color = "#d1570a",
                   .dots = true,
                   .label_last = true,
                   .points = held_out}};
  return chart;
}

void take_record(const Json& record, const std::string& kind, RunLog& log) {
  const double step = number_or(record, "step", NAN);
  const ChartPoint loss{step, number_or(record, "loss", NAN)};
  if (kind == "start") take_start(record, log);
  if (kind == "end") take_end(record, log);
  if (kind == "eval") {
    take_rewards(record, step, log.rewards_held_out);
    if (record.contains("loss")) log.held_out.push_back(loss);
    take_preference(record, step, log.preference_held_out);
  }
  if (kind == "step") {
    log.training.push_back(loss);
    const auto skipped = record.find("skipped");
    log.last_skipped = skipped != record.end() && skipped->is_boolean() && skipped->get<bool>();
    log.last_learned = number_or(record, "learned", 1) > 0;
    take_preference(record, step, log.preference);
    take_rewards(record, step, log.rewards);
    take_experts(record, step, log.experts);
    log.tokens_per_s.push_back({step, number_or(record, "tokens_per_s", NAN)});
    log.tokens += number_or(record, "tokens", 0);
    take_ranks(record, step, log);
  }
  log.seconds = number_or(record, "run_seconds", log.seconds);
}

}  // namespace

Result<RunLog> read_run_log(const std::string& path) {
  RunLog log;
  // The last line may be half-written while the run goes on.
  std::string pending;
  int64_t pending_number = 0;
  const auto take = [&](const std::string& line, int64_t number) -> Status {
    if (line.empty()) return {};
    JIGE_TRY(const Json record, parse_json(line, fmt::format("{}:{}", path, number)));
    if (!record.is_object()) return {};
    take_record(record, text_or_none(record, "kind"), log);
    return {};
  };
  const auto take_the_one_before = [&](std::string_view line, int64_t number) -> Result<bool> {
    JIGE_DO(take(pending, pending_number));
    pending = line;
    pending_number = number;
    return true;
  };
  JIGE_DO(for_each_line(path, take_the_one_before));
  if (const Status last = take(pending, pending_number); !last) {
    log_warn("{}", last.error().message);
  }
  if (log.training.empty()) {
    return fail(Code::kCorrupt, "{}: holds no step with a loss; it must be the log.jsonl of a run",
                path);
  }
  return log;
}

std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points) {
  const double window = std::max(1.0, static_cast<double>(points.size()) / 40);
  const double keep = 1 - 1 / window;
  std::vector<ChartPoint> out;
  double mean = 0, weight = 0;
  for (const ChartPoint& point : points) {
    if (!std::isfinite(point.y)) continue;
    mean = keep * mean + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    out.push_back({point.x, mean / weight});
  }
  return out;
}

LineChart loss_chart(const RunLog& log, const std::string& title) {
  const bool pairs = !log.preference.margin.empty();
  const char* of = pairs                        ? "loss (a pair)"
                   : log.rewards.reward.empty() ? "loss (nats per token)"
                                                : "loss (a token's surrogate)";
  LineChart chart = both_chart(title, of, log.training, log.held_out);
  chart.subtitle = counted(std::ssize(log.training), "step");
  if (log.tokens > 0) chart.subtitle += fmt::format(", {} tokens", format_count(log.tokens));
  if (log.seconds > 0) chart.subtitle += fmt::format(", {}", format_duration(log.seconds));
  return chart;
}

std::vector<LineChart> preference_charts(const RunLog& log) {
  const PreferenceCurves& training = log.preference;
  const PreferenceCurves& held_out = log.preference_held_out;
  LineChart logprobs{.title = "Log-probabilities", .x_label = "step", .y_label = "nats per answer"};
  logprobs.series = {
      {.name = "chosen", .color = "#1f6feb", .points = smoothed(training.chosen_logprob)},
      {.name = "rejected", .color = "#d1570a", .points = smoothed(training.rejected_logprob)}};
  return {both_chart("Reward margin", "nats", training.margin, held_out.margin),
          both_chart("Accuracy", "pairs with a margin above 0, %", training.accuracy,
                     held_out.accuracy),
          std::move(logprobs)};
}

std::vector<LineChart> reward_charts(const RunLog& log) {
  const RewardCurves& training = log.rewards;
  const auto chart = [](const char* title, const char* y_label, std::vector<ChartSeries> series) {
    return LineChart{
        .title = title, .x_label = "step", .y_label = y_label, .series = std::move(series)};
  };
  const auto line = [](const char* name, const char* color, const std::vector<ChartPoint>& points) {
    return ChartSeries{.name = name, .color = color, .points = smoothed(points)};
  };
  std::vector<LineChart> charts = {
      both_chart("Reward", "mean of answers", training.reward, log.rewards_held_out.reward),
      chart("Answers", "%",
            {line("full marks", "#1a7f37", training.full_share),
             line("cut at the limit", "#d1570a", training.cut_share),
             line("groups without signal", "#6e7781", training.silent_share)}),
      both_chart("Length", "tokens an answer", training.answer_tokens,
                 log.rewards_held_out.answer_tokens),
      chart("Time", "seconds a step",
            {line("drawing", "#1f6feb", training.draw_s),
             line("scoring", "#d1570a", training.score_s),
             line("learning", "#1a7f37", training.learn_s)}),
      chart("Drawn and learned", "nats, mean difference of log-probabilities",
            {line("", "#1f6feb", training.logprob_gap)}),
      chart("Clipped", "% of tokens", {line("", "#1f6feb", training.clipped_share)})};
  if (!training.kl.empty()) {
    charts.push_back(chart("Distance from the first weights", "nats a token",
                           {line("", "#1f6feb", training.kl)}));
  }
  if (!training.length_reward.empty()) {
    charts.push_back(chart("What lengths add to rewards", "mean of answers",
                           {line("", "#1f6feb", training.length_reward)}));
  }
  return charts;
}

LineChart expert_chart(const RunLog& log) {
  LineChart chart{.title = "The busiest expert",
                  .x_label = "step",
                  .y_label = "tokens, over those of equal use"};
  chart.series = {
      {.name = "mean of layers", .color = "#1f6feb", .points = smoothed(log.experts.busiest_mean)},
      {.name = "most of a layer", .color = "#d1570a", .points = smoothed(log.experts.busiest)}};
  return chart;
}

}  // namespace jige::cli
