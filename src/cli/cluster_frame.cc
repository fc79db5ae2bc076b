#include "cli/cluster_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/printable.h"
#include "cli/cluster_view.h"

namespace jige::cli {
namespace {

double state_number(const Json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_number() ? found->get<double>()
                                                                           : 0;
}

std::string state_text(const Json& object, const char* field, size_t columns_max) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_string()) return "";
  return cut_to_columns(printable(found->get<std::string>()), columns_max);
}

std::vector<Json> list(const Json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_array()) return {};
  return {found->begin(), found->end()};
}

std::string node_line(const std::vector<Json>& nodes, double leaf) {
  std::string line = fmt::format("  leaf {:.0f} ", leaf + 1);
  for (const Json& node : nodes) {
    if (state_number(node, "leaf") != leaf) continue;
    const auto gpus = static_cast<size_t>(std::clamp(state_number(node, "gpus"), 0.0, 64.0));
    const auto free = static_cast<size_t>(std::clamp(state_number(node, "free"), 0.0, 64.0));
    const auto blocked = static_cast<size_t>(std::clamp(state_number(node, "blocked"), 0.0, 64.0));
    std::string cells(std::min(blocked, gpus), 'x');
    cells.resize(std::max(cells.size(), gpus - std::min(gpus, free)), '#');
    cells.resize(gpus, '.');
    line += fmt::format(" {} [{}]", state_text(node, "name", 12), cells);
  }
  return line;
}

std::string job_line(const Json& job) {
  std::string nodes;
  for (const Json& name : list(job, "wanted")) {
    if (name.is_string()) nodes += (nodes.empty() ? "" : ",") + printable(name.get<std::string>());
  }
  const bool runs = !nodes.empty();
  return fmt::format(
      "  {:>7} {:<12} {:>4} {:<9} {:>8} {:>8}  {}", state_number(job, "job"),
      state_text(job, "name", 12), state_number(job, "gpus"), state_text(job, "seen", 9),
      short_time(state_number(job, "age_s")), short_time(state_number(job, "left_s")),
      runs ? fmt::format("{} at {:.0f} %", nodes, 100 * state_number(job, "progress"))
           : state_text(job, "why", 200));
}

}  // namespace

std::string render_cluster(const Json& status, int rows_max, int columns_max) {
  const std::vector<Json> nodes = list(status, "nodes");
  std::vector<Json> jobs = list(status, "jobs");
  std::ranges::stable_partition(jobs, [](const Json& job) { return !list(job, "wanted").empty(); });
  double used = 0, gpus = 0, leaves = 0, running = 0;
  for (const Json& node : nodes) {
    gpus += state_number(node, "gpus");
    used += state_number(node, "gpus") - state_number(node, "free");
    leaves = std::max(leaves, state_number(node, "leaf") + 1);
  }
  for (const Json& job : jobs) running += state_text(job, "seen", 9) == "running";
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("  {} GPUs, {} in use; {} jobs run, {} do not; {} decisions, {} requeues", gpus,
                  used, running, static_cast<double>(jobs.size()) - running,
                  state_number(status, "decisions"), state_number(status, "preemptions")));
  if (const std::string closed = state_text(status, "closed", 20); !closed.empty()) {
    lines.push_back(fmt::format("  the partition is {}: nothing is placed until it is up", closed));
  }
  lines.emplace_back();
  for (double leaf = 0; leaf < std::min(leaves, 1000.0); ++leaf) {
    lines.push_back(node_line(nodes, leaf));
  }
  lines.emplace_back();
  lines.push_back(fmt::format("  {:>7} {:<12} {:>4} {:<9} {:>8} {:>8}  {}", "job", "name", "GPUs",
                              "seen", "age", "left", "where, or why not"));
  for (const Json& job : jobs) lines.push_back(job_line(job));
  for (const Json& job : list(status, "refused")) {
    lines.push_back(fmt::format("  {:>7} left alone: {}", state_number(job, "job"),
                                state_text(job, "why", 200)));
  }
  const auto shown = static_cast<size_t>(std::max(1, rows_max - 1));
  if (lines.size() > shown) {
    const size_t hidden = lines.size() - shown + 1;
    lines.resize(shown - 1);
    lines.push_back(fmt::format("  … {} more", hidden));
  }
  std::string frame;
  for (const std::string& line : lines) {
    frame += cut_to_columns(line, static_cast<size_t>(std::max(10, columns_max))) + "\n";
  }
  return frame;
}

}  // namespace jige::cli
