#include "cli/cluster_explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/printable.h"
#include "cli/cluster_view.h"

namespace jige::cli {
namespace {

double logged_number(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string word(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

std::string nodes_in(const Json& object, const char* field = "nodes") {
  const auto found = object.find(field);
  std::string text;
  if (found == object.end() || !found->is_array()) return text;
  for (const Json& name : *found) {
    if (name.is_string()) text += (text.empty() ? "" : ",") + printable(name.get<std::string>());
  }
  return text;
}

const Json* list_in(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_array() && !found->empty() ? &*found : nullptr;
}

std::string score_text(const Json& score) {
  return fmt::format("score {:.3f}: {:.0f} % of its full speed, {:.0f} slowed by {:.2f} together",
                     logged_number(score, "score"), 100 * logged_number(score, "progress"),
                     logged_number(score, "slowed"), logged_number(score, "loss_of_others"));
}

std::string place_text(const Json& line) {
  std::string text = fmt::format("placed on {} ({:.0f} GPUs each) after {} of waiting",
                                 nodes_in(line), logged_number(line, "gpus_per_node"),
                                 short_time(logged_number(line, "waited_s")));
  if (const std::string from = nodes_in(line, "moved_from"); !from.empty()) {
    text = fmt::format("moved from {} to {}", from, nodes_in(line));
  }
  if (const std::string stands = word(line, "class"); !stands.empty()) {
    text += fmt::format("\n             {}: {}", stands, word(line, "class_text"));
  }
  if (line.value("for_shape", Json(false)) == Json(true)) {
    text += "\n             for its shape: GPUs enough were there, but not on enough nodes";
  }
  if (const auto score = line.find("score"); score != line.end() && score->is_object()) {
    text += "\n             here: " + score_text(*score);
  }
  if (const Json* others = list_in(line, "alternatives")) {
    for (const Json& other : *others) {
      text += fmt::format("\n      rather than {}: {}", nodes_in(other), score_text(other));
    }
  } else {
    text += "\n             no other place was free for it";
  }
  if (const Json* evicted = list_in(line, "evicted")) {
    for (const Json& victim : *evicted) {
      text +=
          fmt::format("\n             evicted job {:.0f}, which had {} left",
                      logged_number(victim, "job"), short_time(logged_number(victim, "left_s")));
    }
    text +=
        fmt::format("\n             it runs up to {} earlier for that, and {} of restarts are paid",
                    short_time(logged_number(line, "earlier_s")),
                    short_time(logged_number(line, "restart_cost_s")));
  }
  return text;
}

std::string line_text(const Json& line, int64_t job) {
  const std::string event = word(line, "event");
  if (event == "place") {
    if (logged_number(line, "job") == static_cast<double>(job)) return place_text(line);
    return fmt::format("evicted for job {:.0f}", logged_number(line, "job"));
  }
  if (event == "wait") return "waits: " + word(line, "text");
  if (event == "preempt") {
    return fmt::format("loses {} with {} of work left; its restart costs {}", nodes_in(line),
                       short_time(logged_number(line, "left_s")),
                       short_time(logged_number(line, "restart_s")));
  }
  if (event == "action") {
    const std::string error = word(line, "error");
    return fmt::format("  Slurm: {} {}{}", word(line, "step"), nodes_in(line),
                       error.empty() ? "" : " failed: " + error);
  }
  std::string text = event;
  if (const std::string detail = word(line, "text"); !detail.empty()) text += ": " + detail;
  if (event == "start" && line.contains("seconds")) {
    text += fmt::format("  (seen {:.2f} s after its release)", logged_number(line, "seconds"));
  }
  if (event == "finish")
    text += ", " + short_time(logged_number(line, "seconds")) + " after it came";
  return text;
}

}  // namespace

std::vector<Json> lines_about(std::string_view log, int64_t job, std::string_view where) {
  std::vector<Json> lines;
  const std::string number = fmt::format("\"job\":{}", job);
  for (int64_t at = 1; !log.empty(); ++at) {
    const size_t end = log.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view text = log.substr(0, end);
    log.remove_prefix(end + 1);
    if (text.find(number) == std::string_view::npos) continue;
    Result<Json> line = parse_json(text, fmt::format("{}:{}", where, at));
    if (!line || !line->is_object()) {
      // A full disk or a crash may have cut it short.
      log_warn("{}: line {} is left out: {}", where, at,
               line ? "it is no JSON object" : line.error().message);
      continue;
    }
    const auto is_it = [&](const Json& object) {
      const auto found = object.find("job");
      return found != object.end() && found->is_number_integer() && found->get<int64_t>() == job;
    };
    bool about = is_it(*line);
    if (const Json* evicted = list_in(*line, "evicted"); evicted && !about) {
      for (const Json& victim : *evicted) about = about || (victim.is_object() && is_it(victim));
    }
    if (about) lines.push_back(std::move(*line));
  }
  return lines;
}

std::string explain_text(const std::vector<Json>& lines, int64_t job) {
  std::string text = fmt::format("Job {}\n\n", job);
  double begin_s = 0;
  for (const Json& line : lines) {
    if (begin_s == 0) begin_s = logged_number(line, "cluster_s");
    text += fmt::format("  {:>9}  {}\n", short_time(logged_number(line, "cluster_s") - begin_s),
                        line_text(line, job));
  }
  return text;
}

}  // namespace jige::cli
