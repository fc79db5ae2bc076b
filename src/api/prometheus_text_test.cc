#include "api/prometheus_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace jige::api {
namespace {

TEST(PrometheusText, WritesGaugesAndCounters) {
  PrometheusText text(std::vector<MetricLabel>{{"model_name", "a\"b\\c\nd"}});
  text.gauge("jige:running", "Running now.", 3);
  text.counter("jige:done", "Done.",
               {{.labels = {{"reason", "stop"}}, .value = 1e10}, {.labels = {}, .value = 0.25}});
  EXPECT_EQ(text.take(),
            "# HELP jige:running Running now.\n"
            "# TYPE jige:running gauge\n"
            "jige:running{model_name=\"a\\\"b\\\\c\\nd\"} 3\n"
            "# HELP jige:done Done.\n"
            "# TYPE jige:done counter\n"
            "jige:done{model_name=\"a\\\"b\\\\c\\nd\",reason=\"stop\"} 10000000000\n"
            "jige:done{model_name=\"a\\\"b\\\\c\\nd\"} 0.25\n");
}

TEST(PrometheusText, WritesNumbersThatAreNone) {
  PrometheusText text;
  text.gauge("a", "A.", INFINITY);
  text.gauge("b", "B.", NAN);
  EXPECT_EQ(text.take(),
            "# HELP a A.\n# TYPE a gauge\na +Inf\n# HELP b B.\n# TYPE b gauge\nb NaN\n");
}

TEST(PrometheusText, AddsUpBuckets) {
  serve::Histogram histogram({0.5, 2});
  for (const double value : {0.1, 0.5, 1.0, 3.0, 4.0}) histogram.observe(value);
  PrometheusText text;
  text.histogram("h", "H.", histogram.snapshot());
  EXPECT_EQ(text.take(),
            "# HELP h H.\n"
            "# TYPE h histogram\n"
            "h_bucket{le=\"0.5\"} 2\n"
            "h_bucket{le=\"2\"} 3\n"
            "h_bucket{le=\"+Inf\"} 5\n"
            "h_sum 8.6\n"
            "h_count 5\n");
}

}  // namespace
}  // namespace jige::api
