// GET /metrics and GET /top: what the engine and the HTTP server tell about themselves.
//
// Names that other servers of language models have too are the same here behind the prefix "jige:",
// so that dashboards need only another prefix.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/http_server.h"
#include "api/image_reader.h"
#include "api/prometheus_text.h"
#include "api/served_adapters.h"
#include "base/json.h"
#include "plan/serve_replan.h"
#include "serve/engine.h"

namespace jige::api {

// What the machine can do at most, if it was measured: the achieved shares refer to it.
struct MachinePeaks {
  double bytes_per_s = 0;  // 0: not measured
  double flops_per_s = 0;
};

// Answers by route and status.
using ResponseCounts = std::map<std::pair<std::string, int>, int64_t>;

struct MetricsSource {
  std::string model;
  const serve::Engine* engine = nullptr;  // none while the model is loading
  std::shared_ptr<const ServedAdapters> adapters = std::make_shared<ServedAdapters>();
  int64_t embedding_dimensions = 0;  // of a model that makes vectors; else 0
  HttpServerStats http;
  ResponseCounts responses;
  MachinePeaks peaks;
  std::optional<ImageReaderCounts> images;   // where the model reads them
  std::optional<plan::ReplanStatus> replan;  // where something plans again
};

// Those of the HTTP server: the same for a server and a router.
void write_http_metrics(PrometheusText& text, const HttpServerStats& http,
                        const ResponseCounts& responses);

std::string metrics_text(const MetricsSource& source);

// A snapshot for a live view in a terminal: totals, and a row a request.
Json top_json(const MetricsSource& source);

}  // namespace jige::api
