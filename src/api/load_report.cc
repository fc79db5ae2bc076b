#include "api/load_report.h"

#include <algorithm>
#include <charconv>

namespace jige::api {
namespace {

constexpr double kRequestsMax = 1e9;

struct LoadGauge {
  std::string_view name;
  bool runs = false;  // else it waits
};
constexpr LoadGauge kGauges[] = {
    {"jige:num_requests_running", true},       {"jige:num_requests_waiting", false},
    {"jige_route:num_requests_running", true}, {"jige_route:num_requests_waiting", false},
    {"vllm:num_requests_running", true},       {"vllm:num_requests_waiting", false},
    {"sglang:num_running_reqs", true},         {"sglang:num_queue_reqs", false},
    {"llamacpp:requests_processing", true},    {"llamacpp:requests_deferred", false},
};

// The value of a line behind its name: "{labels} 3 1700000000", or " 3".
std::optional<double> sample_value(std::string_view rest) {
  if (rest.starts_with('{')) {
    const size_t end = rest.rfind('}');
    if (end == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(end + 1);
  }
  const size_t begin = std::min(rest.find_first_not_of(" \t"), rest.size());
  if (begin == 0) return std::nullopt;  // a longer name
  rest.remove_prefix(begin);
  rest = rest.substr(0, rest.find_first_of(" \t\r"));
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  const bool whole = error == std::errc() && end == rest.data() + rest.size();
  if (!whole || !(value >= 0 && value <= kRequestsMax)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<plan::LoadReport> read_load_report(std::string_view metrics) {
  plan::LoadReport report;
  bool told = false;
  for (size_t begin = 0; begin < metrics.size();) {
    const size_t end = std::min(metrics.find('\n', begin), metrics.size());
    const std::string_view line = metrics.substr(begin, end - begin);
    begin = end + 1;
    for (const LoadGauge& gauge : kGauges) {
      if (!line.starts_with(gauge.name)) continue;
      const std::optional<double> value = sample_value(line.substr(gauge.name.size()));
      if (!value) continue;
      double& sum = gauge.runs ? report.running : report.waiting;
      sum = std::min(sum + *value, kRequestsMax);
      told = told || gauge.runs;
    }
  }
  if (!told) return std::nullopt;
  return report;
}

}  // namespace jige::api
