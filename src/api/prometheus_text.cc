#include "api/prometheus_text.h"

#include <fmt/format.h>

#include <cmath>

namespace jige::api {
namespace {

std::string shown(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
  }
}

}  // namespace

void PrometheusText::head(std::string_view name, std::string_view help, std::string_view type) {
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void PrometheusText::sample(std::string_view name, std::string_view suffix,
                            const std::vector<MetricLabel>& labels, double value) {
  text_ += name;
  text_ += suffix;
  char before = '{';
  const auto add = [&](const MetricLabel& label) {
    text_ += before;
    text_ += label.first;
    text_ += "=\"";
    append_escaped(text_, label.second);
    text_ += '"';
    before = ',';
  };
  for (const MetricLabel& label : labels_) add(label);
  for (const MetricLabel& label : labels) add(label);
  if (before == ',') text_ += '}';
  text_ += ' ';
  text_ += shown(value);
  text_ += '\n';
}

void PrometheusText::gauge(std::string_view name, std::string_view help, double value) {
  head(name, help, "gauge");
  sample(name, "", {}, value);
}

void PrometheusText::gauge(std::string_view name, std::string_view help,
                           const std::vector<MetricSample>& samples) {
  head(name, help, "gauge");
  for (const MetricSample& one : samples) sample(name, "", one.labels, one.value);
}

void PrometheusText::counter(std::string_view name, std::string_view help, double value) {
  counter(name, help, {{.labels = {}, .value = value}});
}

void PrometheusText::counter(std::string_view name, std::string_view help,
                             const std::vector<MetricSample>& samples) {
  head(name, help, "counter");
  for (const MetricSample& one : samples) sample(name, "", one.labels, one.value);
}

void PrometheusText::histogram(std::string_view name, std::string_view help,
                               const serve::Histogram::Snapshot& snapshot) {
  histogram(name, help, {{.labels = {}, .snapshot = snapshot}});
}

void PrometheusText::histogram(std::string_view name, std::string_view help,
                               const std::vector<HistogramSample>& samples) {
  head(name, help, "histogram");
  for (const HistogramSample& one : samples) {
    const auto bucket = [&](std::string bound, uint64_t below) {
      std::vector<MetricLabel> labels = one.labels;
      labels.emplace_back("le", std::move(bound));
      sample(name, "_bucket", labels, static_cast<double>(below));
    };
    uint64_t below = 0;
    for (size_t i = 0; i < one.snapshot.bounds.size(); ++i) {
      below += one.snapshot.counts[i];
      bucket(shown(one.snapshot.bounds[i]), below);
    }
    bucket("+Inf", one.snapshot.count);
    sample(name, "_sum", one.labels, one.snapshot.sum);
    sample(name, "_count", one.labels, static_cast<double>(one.snapshot.count));
  }
}

}  // namespace jige::api
