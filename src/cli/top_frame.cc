#include "cli/top_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/flags_help.h"
#include "cli/table.h"
#include "plan/guess_policy.h"

namespace jige::cli {
namespace {

constexpr int kBarCells = 30;
constexpr size_t kLabelColumns = 10;  // "latency   "
constexpr int kRowsForWrapping = 20;  // in fewer, lines are cut instead
constexpr const char* kNothing = "–";

std::optional<double> number(const Json& object, const char* field) {
  const Json* found = find_field(object, field);
  if (!found || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text(const Json& object, const char* field) {
  const Json* found = find_field(object, field);
  if (!found || !found->is_string()) return kNothing;
  return cut_to_columns(printable(found->get<std::string>()), 100);
}

bool is_true(const Json& object, const char* field) {
  const Json* found = find_field(object, field);
  return found && found->is_boolean() && found->get<bool>();
}

std::string shown(const std::optional<double>& value, std::string_view unit = "") {
  if (!value || !std::isfinite(*value)) return kNothing;
  const bool whole = *value == std::floor(*value) || std::fabs(*value) >= 1000;
  return whole ? fmt::format("{:.0f}{}", *value, unit) : fmt::format("{:.3g}{}", *value, unit);
}

std::string in_ms(const std::optional<double>& seconds) {
  return seconds ? shown(*seconds * 1000, " ms") : kNothing;
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", *share * 100) : kNothing;
}

std::string share_bar(const std::optional<double>& share) {
  const double full = std::clamp(share.value_or(0), 0.0, 1.0) * kBarCells;
  std::string cells;
  for (int i = 0; i < kBarCells; ++i) cells += i < std::lround(full) ? "█" : "░";
  return cells;
}

const Json& requests_of(const Json& top) {
  static const Json kNone = Json::array();
  const Json* found = find_field(top, "requests");
  return found && found->is_array() ? *found : kNone;
}

int64_t count_in_state(const Json& top, std::string_view state) {
  return std::ranges::count_if(requests_of(top),
                               [&](const Json& row) { return text(row, "state") == state; });
}

std::string state_of(const Json& top) {
  if (is_true(top, "loading")) return "loading";
  if (is_true(top, "layers_lost")) return "LAYERS LOST";
  if (is_true(top, "stalled")) return "STALLED";
  return is_true(top, "accepting") ? "accepting" : "draining";
}

std::string latency_text(const Json& top, const char* field) {
  const Json* found = find_field(top, field);
  if (!found) return kNothing;
  return fmt::format("p50 {}, p99 {}", in_ms(number(*found, "p50")), in_ms(number(*found, "p99")));
}

std::optional<double> accepted_share(const Json& top) {
  const auto drafted = number(top, "drafted_tokens");
  const auto accepted = number(top, "accepted_tokens");
  if (!drafted || !accepted || *drafted <= 0) return std::nullopt;
  return *accepted / *drafted;
}

// "; planned again 3 min ago: switched", where something plans again.
std::string replan_text(const Json& top) {
  const Json* const replan = find_field(top, "replan");
  if (!replan) return {};
  if (is_true(*replan, "planning")) return "; planning again";
  const Json* const last = find_field(*replan, "last");
  const auto age_s = last ? number(*last, "age_seconds") : std::nullopt;
  if (!age_s) return {};
  return fmt::format("; planned again {} ago: {}", format_duration(*age_s), text(*last, "outcome"));
}

// "chunked, max_batch 16, batch_tokens 256"
std::string scheduling_text(const Json& top) {
  const Json* found = find_field(top, "scheduling");
  if (!found || !found->is_object()) return kNothing;
  std::string shown_text = text(*found, "policy");
  for (const auto& [name, value] : found->items()) {
    if (value.is_number()) {
      shown_text += fmt::format(", {} {}", printable(name), shown(value.get<double>()));
    }
  }
  const Json* const drift = find_field(top, "drift");
  if (drift && is_true(*drift, "drifted")) shown_text += "; REQUESTS ARE OTHERS THAN PLANNED";
  return shown_text + replan_text(top);
}

// ": forced 12 of 12, model 3 of 8", of sources that have guessed something.
std::string guesses_by_source(const Json& top) {
  const Json* const guesses = find_field(top, "guesses");
  if (!guesses) return {};
  std::string line;
  for (const std::string_view source : plan::kGuessKindNames) {
    const Json* const counts = find_field(*guesses, source);
    const auto guessed = counts ? number(*counts, "guessed") : std::nullopt;
    if (!guessed || *guessed <= 0) continue;
    line += fmt::format("{} {} {} of {}", line.empty() ? ":" : ",", source,
                        shown(number(*counts, "right")), shown(guessed));
  }
  return line;
}

std::vector<std::string> head_lines(const TopSample& now, const TopSample* before,
                                    const TopView& view) {
  const Json& top = now.top;
  const auto age = number(top, "uptime_seconds");
  return {
      fmt::format("{} at {}, {}, up {}; {}", text(top, "model"), view.address, state_of(top),
                  age ? format_duration(*age) : kNothing, scheduling_text(top)),
      fmt::format("requests  {} prefilling, {} decoding, {} waiting ({} prompt tokens), {} "
                  "preempted",
                  count_in_state(top, "prefill"), count_in_state(top, "decode"),
                  shown(number(top, "waiting_requests")),
                  shown(number(top, "waiting_prompt_tokens")), shown(number(top, "preempted"))),
      fmt::format("cache     {} {} of {} blocks, {} kept for later, {} of prompts found",
                  share_bar(number(top, "kv_usage")), percent(number(top, "kv_usage")),
                  shown(number(top, "kv_blocks")), shown(number(top, "kv_blocks_cached")),
                  percent(prefix_hit_share(now))),
      fmt::format("speed     {} tokens/s of answers, {} tokens/s computed, {} and {} tokens in the "
                  "last iteration, {} of guesses right{}",
                  shown(answer_tokens_per_s(now, before)), shown(number(top, "tokens_per_second")),
                  in_ms(number(top, "last_iteration_seconds")),
                  shown(number(top, "last_iteration_tokens")), percent(accepted_share(top)),
                  guesses_by_source(top)),
      fmt::format("latency   first token {}; between tokens {}",
                  latency_text(top, "first_token_seconds"),
                  latency_text(top, "inter_token_seconds")),
  };
}

bool has_adapters(const Json& top) {
  const Json* found = find_field(top, "adapters");
  return found && found->is_array() && !found->empty();
}

// With `models`, which of those that are served each request is for.
std::string request_table(const Json& rows, size_t rows_max, bool models) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {
      {"request", kRight}, {"state"},           {"prompt", kRight},    {"computed", kRight},
      {"answer", kRight},  {"at most", kRight}, {"preempted", kRight}, {"age", kRight}};
  if (models) columns.push_back({"model"});
  Table table(std::move(columns));
  for (size_t i = 0; i < std::min(rows.size(), rows_max); ++i) {
    const Json& row = rows[i];
    std::vector<std::string> cells = {shown(number(row, "id")),
                                      text(row, "state"),
                                      shown(number(row, "prompt_tokens")),
                                      shown(number(row, "computed_tokens")),
                                      shown(number(row, "generated_tokens")),
                                      shown(number(row, "tokens_max")),
                                      shown(number(row, "preemptions")),
                                      shown(number(row, "age_seconds"), " s")};
    if (models) cells.push_back(text(row, "model"));
    table.row(std::move(cells));
  }
  std::string lines = table.render();
  if (rows.size() > rows_max) lines += fmt::format("  and {} more\n", rows.size() - rows_max);
  return lines;
}

std::string cut_lines(std::string_view lines, int columns_max) {
  std::string out;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    out += cut_to_columns(line, static_cast<size_t>(std::max(0, columns_max)));
    lines.remove_prefix(line.size());
    if (!lines.empty()) lines.remove_prefix(1);
    out += '\n';
  }
  return out;
}

}  // namespace

std::optional<double> metric_sum(std::string_view text, std::string_view name) {
  std::optional<double> sum;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.empty() || (line[0] != ' ' && line[0] != '{')) continue;
    // Labels may hold spaces, and a brace ends them.
    const size_t labels = line.rfind('}');
    if (labels != std::string_view::npos) line.remove_prefix(labels + 1);
    while (line.starts_with(' ')) line.remove_prefix(1);
    double value = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), value);
    if (parsed.ec == std::errc()) sum = sum.value_or(0) + value;
  }
  return sum;
}

std::optional<double> prefix_hit_share(const TopSample& sample) {
  const auto asked = metric_sum(sample.metrics, "jige:prefix_cache_queries_total");
  const auto found = metric_sum(sample.metrics, "jige:prefix_cache_hits_total");
  if (!asked || !found || *asked <= 0) return std::nullopt;
  return *found / *asked;
}

std::optional<double> answer_tokens_per_s(const TopSample& now, const TopSample* before) {
  if (!before || now.at_s <= before->at_s) return std::nullopt;
  const auto later = number(now.top, "generated_tokens");
  const auto earlier = number(before->top, "generated_tokens");
  if (!later || !earlier || *later < *earlier) return std::nullopt;
  return (*later - *earlier) / (now.at_s - before->at_s);
}

std::string render_top(const TopSample& now, const TopSample* before, const TopView& view) {
  std::string lines;
  int used = 3;  // the table's head and what may stand below it
  for (std::string line : head_lines(now, before, view)) {
    if (view.rows_max >= kRowsForWrapping && line.size() > kLabelColumns) {
      line = line.substr(0, kLabelColumns) +
             wrap_text(line.substr(kLabelColumns), kLabelColumns,
                       static_cast<size_t>(std::max(0, view.columns_max)));
    }
    used += 1 + static_cast<int>(std::ranges::count(line, '\n'));
    lines += line + "\n";
  }
  const Json& rows = requests_of(now.top);
  if (!rows.empty()) {
    const int left = std::max(1, view.rows_max - used - 1);
    lines += "\n" + request_table(rows, static_cast<size_t>(left), has_adapters(now.top));
  }
  return cut_lines(lines, view.columns_max);
}

}  // namespace jige::cli
