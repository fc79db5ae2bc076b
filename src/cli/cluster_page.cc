#include "cli/cluster_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/xml_text.h"
#include "cli/heat_map.h"
#include "cli/line_chart.h"

namespace jige::cli {
namespace {

using cluster::ScheduleReport;

constexpr const char* kJobColors[] = {"#1f6feb", "#d1570a", "#1a7f37", "#8250df", "#bf3989",
                                      "#6e7781", "#9a6700", "#0550ae", "#cf222e", "#116329"};

const char* job_color(size_t index) { return kJobColors[index % std::size(kJobColors)]; }

std::string load_chart(std::span<const ClusterPoint> points, double ScheduleReport::*figure,
                       const char* title) {
  LineChart chart{.title = title,
                  .subtitle = "mean over seeds; time from arrival to end, queueing included",
                  .x_label = "offered load",
                  .y_label = "hours",
                  .y_log = true};
  std::vector<std::string> policies;
  for (const ClusterPoint& point : points) {
    if (std::ranges::find(policies, point.policy) == policies.end()) {
      policies.push_back(point.policy);
    }
  }
  for (const std::string& policy : policies) {
    ChartSeries series{.name = policy, .color = job_color(chart.series.size()), .dots = true};
    for (const ClusterPoint& point : points) {
      if (point.policy != policy) continue;
      const double mean_s = cluster::estimate(values_of(point, figure)).mean;
      series.points.push_back({point.load, mean_s / 3600});
    }
    chart.series.push_back(std::move(series));
  }
  return render_svg(chart);
}

std::string jct_chart(std::span<const ClusterPicture> pictures) {
  LineChart chart{.title = "Distribution of job completion times",
                  .subtitle = fmt::format("first seed, load {:.2f}", pictures[0].load),
                  .x_label = "share of jobs that take at most so long",
                  .y_label = "hours",
                  .y_log = true};
  for (const ClusterPicture& picture : pictures) {
    ChartSeries series{.name = picture.policy, .color = job_color(chart.series.size())};
    const size_t count = picture.jct_s.size();
    for (size_t i = 0; i < count; ++i) {
      series.points.push_back(
          {static_cast<double>(i + 1) / static_cast<double>(count), picture.jct_s[i] / 3600});
    }
    chart.series.push_back(std::move(series));
  }
  return render_svg(chart);
}

std::string use_chart(std::span<const ClusterPicture> pictures, const cluster::ClusterSpec& spec) {
  LineChart chart{.title = "GPUs held over time",
                  .subtitle = fmt::format("first seed, load {:.2f}", pictures[0].load),
                  .x_label = "hours",
                  .y_label = "share of all GPUs"};
  for (const ClusterPicture& picture : pictures) {
    ChartSeries series{.name = picture.policy, .color = job_color(chart.series.size())};
    const cluster::TimeSeries& gpus = picture.record.gpus();
    const auto width_ns = static_cast<double>(gpus.width_ns());
    for (size_t i = 0; i < gpus.amounts().size(); ++i) {
      const double hours = (static_cast<double>(i) + 0.5) * width_ns / cluster::kSecond / 3600;
      series.points.push_back({hours, gpus.amounts()[i] / width_ns / spec.gpu_count()});
    }
    chart.series.push_back(std::move(series));
  }
  return render_svg(chart);
}

// Uplinks of leaves, each the mean of its links, then the busiest card of each leaf.
std::string congestion_map(const ClusterPicture& picture, const cluster::ClusterSpec& spec) {
  const std::vector<cluster::TimeSeries>& links = picture.record.links();
  HeatMap map{
      .title = fmt::format("Congestion: {}", picture.policy),
      .subtitle = "share of the bandwidth in use: uplinks of each leaf, then its busiest card",
      .x_label = "hours"};
  int64_t width_ns = 0;
  for (const cluster::TimeSeries& link : links) width_ns = std::max(width_ns, link.width_ns());
  const std::vector<double> capacities = spec.capacities();
  size_t columns = 0;
  const auto shares_of = [&](int32_t link) {
    const auto i = static_cast<size_t>(link);
    std::vector<double> shares = links[i].at_width(width_ns);
    const double most = capacities[i] * static_cast<double>(width_ns) / cluster::kSecond;
    for (double& share : shares) share /= most;
    columns = std::max(columns, shares.size());
    return shares;
  };
  const auto add = [](std::vector<double>& into, const std::vector<double>& values, auto combine) {
    if (into.size() < values.size()) into.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) into[i] = combine(into[i], values[i]);
  };
  for (int32_t leaf = 0; leaf < spec.leaf_count && spec.leaf_count > 1; ++leaf) {
    HeatMap::Row row{.name = fmt::format("leaf {}", leaf), .values = {}};
    for (int32_t k = 0; k < spec.links_per_leaf(); ++k) {
      add(row.values, shares_of(spec.uplink(leaf) + k),
          [&](double sum, double value) { return sum + value / spec.links_per_leaf(); });
    }
    map.rows.push_back(std::move(row));
  }
  for (int32_t leaf = 0; leaf < spec.leaf_count; ++leaf) {
    HeatMap::Row row{.name = fmt::format("cards of {}", leaf), .values = {}};
    for (int32_t node = 0; node < spec.nodes_per_leaf; ++node) {
      add(row.values, shares_of(leaf * spec.nodes_per_leaf + node),
          [](double most, double value) { return std::max(most, value); });
    }
    map.rows.push_back(std::move(row));
  }
  map.x_max =
      static_cast<double>(columns) * static_cast<double>(width_ns) / cluster::kSecond / 3600;
  return render_svg(map);
}

constexpr const char* kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<title>Cluster policies compared</title>\n<style>body{font:15px/1.5 system-ui,sans-serif;"
    "max-width:900px;margin:2em auto;padding:0 1em;color:#24292f}"
    "pre{overflow-x:auto;background:#f6f8fa;padding:1em;font-size:12px}"
    "svg{max-width:100%;height:auto;border:1px solid #d8dee4;border-radius:8px;margin:.6em 0}"
    "</style></head><body>\n";

}  // namespace

std::string render_page(const ClusterPage& page) {
  std::string html = kHead;
  html += fmt::format(
      "<h1>Cluster policies compared</h1>\n<p>{}.</p>\n<p>Mean over {} seeds with 95 % confidence "
      "intervals; changes against {} are of the same jobs, seed by seed. JCT is from arrival to "
      "end, with all queueing; service is the time with GPUs.</p>\n<pre>{}</pre>\n",
      xml_text(page.scene), page.seed_count, xml_text(page.base), [&] {
        std::string table;
        for (const char c : cluster_table(page.points, page.base)) {
          table += c == '\n' ? "\n" : xml_text(std::string(1, c));
        }
        return table;
      }());
  html += load_chart(page.points, &ScheduleReport::jct_mean_s, "Mean job completion time");
  html +=
      load_chart(page.points, &ScheduleReport::jct_p99_s, "99th percentile of completion times");
  if (!page.pictures.empty()) {
    html += jct_chart(page.pictures);
    html += use_chart(page.pictures, page.spec);
    for (const ClusterPicture& picture : page.pictures) {
      if (!picture.record.links().empty()) html += congestion_map(picture, page.spec);
    }
  }
  return html + "</body></html>\n";
}

}  // namespace jige::cli
