// PrometheusText: metrics in the text format that Prometheus scrapes.
//
//   PrometheusText text;
//   text.gauge("jige:num_requests_running", "Requests being answered.", 3);
//   text.counter("jige:request_success_total", "…", {{{"finished_reason", "stop"}, 7}});
//   text.histogram("jige:request_prompt_tokens", "…", snapshot);
//   respond(text.take());
//
// Threads: one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/histogram.h"

namespace jige::api {

using MetricLabel = std::pair<std::string, std::string>;

struct MetricSample {
  std::vector<MetricLabel> labels;
  double value = 0;
};

struct HistogramSample {
  std::vector<MetricLabel> labels;
  serve::Histogram::Snapshot snapshot;
};

class PrometheusText {
 public:
  // `labels` stand on every sample.
  explicit PrometheusText(std::vector<MetricLabel> labels = {}) : labels_(std::move(labels)) {}

  void gauge(std::string_view name, std::string_view help, double value);
  void gauge(std::string_view name, std::string_view help,
             const std::vector<MetricSample>& samples);
  void counter(std::string_view name, std::string_view help, double value);
  void counter(std::string_view name, std::string_view help,
               const std::vector<MetricSample>& samples);
  void histogram(std::string_view name, std::string_view help,
                 const serve::Histogram::Snapshot& snapshot);
  void histogram(std::string_view name, std::string_view help,
                 const std::vector<HistogramSample>& samples);

  std::string take() { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view suffix,
              const std::vector<MetricLabel>& labels, double value);

  std::vector<MetricLabel> labels_;
  std::string text_;
};

}  // namespace jige::api
