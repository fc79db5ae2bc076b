#include "api/route_metrics.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "api/prometheus_text.h"

namespace jige::api {
namespace {

template <typename Number>
double as_metric(Number number) {
  return static_cast<double>(number);
}

std::string_view state_name(const plan::RouteServerStatus& status) {
  if (status.leaving) return "leaving";
  switch (status.state) {
    case plan::ServerState::kUp:
      return "up";
    case plan::ServerState::kResting:
      return "resting";
    case plan::ServerState::kDown:
      return "down";
  }
  return "";
}

// A sample for each server.
template <typename Value>
std::vector<MetricSample> by_server(const RouterView& view, const Value& value) {
  std::vector<MetricSample> samples;
  for (const RouteServerView& one : view.servers) {
    samples.push_back({.labels = {{"server", one.address}}, .value = as_metric(value(one))});
  }
  return samples;
}

struct CountedKind {
  const char* name;
  int64_t RouteServerCounts::*field;
};

// Samples for each server.
std::vector<MetricSample> by_kind(const RouterView& view,
                                  std::initializer_list<CountedKind> kinds) {
  std::vector<MetricSample> samples;
  for (const RouteServerView& one : view.servers) {
    for (const CountedKind& kind : kinds) {
      samples.push_back({.labels = {{"server", one.address}, {"kind", kind.name}},
                         .value = as_metric(one.server->counts.*kind.field)});
    }
  }
  return samples;
}

void write_servers(PrometheusText& text, const RouterView& view) {
  using View = const RouteServerView&;
  text.gauge("jige_route:server_up", "1 where a server takes requests or rests for a moment.",
             by_server(view, [](View one) {
               return one.status.state != plan::ServerState::kDown && !one.status.leaving;
             }));
  text.gauge("jige_route:server_requests", "Requests at a server now.",
             by_server(view, [](View one) { return one.status.requests; }));
  text.gauge("jige_route:server_work_tokens", "Work left at a server, in tokens of prompts.",
             by_server(view, [](View one) { return one.status.work; }));
  text.gauge(
      "jige_route:server_known_blocks", "Blocks of beginnings it is believed to know.",
      by_server(view, [](View one) { return static_cast<int64_t>(one.status.known_blocks); }));
  text.gauge("jige_route:server_other_requests", "Requests there that others have sent, about.",
             by_server(view, [](View one) {
               return one.status.others.running + one.status.others.waiting;
             }));
  text.gauge("jige_route:server_prompt_speed", "How fast it reads beside the others.",
             by_server(view, [](View one) { return one.status.speed.prompt; }));
  text.gauge("jige_route:server_answer_speed", "How fast it answers beside the others.",
             by_server(view, [](View one) { return one.status.speed.answer; }));
  text.gauge("jige_route:server_prompt_tokens_per_second",
             "What it reads a second, four bytes a token; 0 where that is not known.",
             by_server(view, [](View one) { return one.rates.prompt; }));
  text.gauge("jige_route:server_answer_tokens_per_second",
             "Of one answer that it makes alone; 0 where that is not known.",
             by_server(view, [](View one) { return one.rates.answer; }));
  text.gauge("jige_route:connections_idle", "Connections kept for further requests.",
             by_server(view, [](View one) { return one.server->idle.count(); }));
}

void write_counts(PrometheusText& text, const RouterView& view) {
  using View = const RouteServerView&;
  const auto counter = [&](std::string_view name, std::string_view help,
                           int64_t RouteServerCounts::*field) {
    text.counter(name, help,
                 by_server(view, [field](View one) { return one.server->counts.*field; }));
  };
  counter("jige_route:requests_total", "Requests sent to a server, retries among them.",
          &RouteServerCounts::requests);
  counter("jige_route:retries_total", "Those that another server had refused or lost.",
          &RouteServerCounts::retries);
  text.counter(
      "jige_route:failures_total",
      "Requests that a server refused (429, 503), that did not reach it, that it lost, that it "
      "did not answer in time.",
      by_kind(view, {{"refused", &RouteServerCounts::refused},
                     {"connect", &RouteServerCounts::connect_failed},
                     {"broke", &RouteServerCounts::broke},
                     {"silent", &RouteServerCounts::silent},
                     {"abandoned", &RouteServerCounts::abandoned}}));
  text.counter("jige_route:answers_total",
               "Whole answers of a server that went on, by status: below 400, below 500, above.",
               by_kind(view, {{"ok", &RouteServerCounts::well},
                              {"client_error", &RouteServerCounts::client_errors},
                              {"server_error", &RouteServerCounts::server_errors}}));
  text.counter("jige_route:connections_total",
               "Connections opened for requests and for probes, requests on one that was kept, and "
               "those of them whose connection had ended.",
               by_kind(view, {{"opened", &RouteServerCounts::opened},
                              {"opened_probe", &RouteServerCounts::opened_probes},
                              {"reused", &RouteServerCounts::reused},
                              {"stale", &RouteServerCounts::stale}}));
  counter("jige_route:cut_total", "Answers lost behind their first bytes.",
          &RouteServerCounts::cut);
  counter("jige_route:cancelled_total", "Requests whose client went.",
          &RouteServerCounts::cancelled);
  counter("jige_route:prompt_tokens_total", "Tokens of prompts sent, four bytes for each.",
          &RouteServerCounts::prompt_tokens);
  counter("jige_route:known_tokens_total", "Those of them it was believed to know.",
          &RouteServerCounts::known_tokens);
  const auto histogram = [&](std::string_view name, std::string_view help,
                             serve::Histogram RouteServer::*field) {
    std::vector<HistogramSample> samples;
    for (const RouteServerView& one : view.servers) {
      samples.push_back(
          {.labels = {{"server", one.address}}, .snapshot = (one.server->*field).snapshot()});
    }
    text.histogram(name, help, samples);
  };
  histogram("jige_route:first_byte_seconds", "From asking a server to its first bytes.",
            &RouteServer::first_byte_seconds);
  histogram("jige_route:answer_seconds", "From asking a server to the end of its answer.",
            &RouteServer::answer_seconds);
}

}  // namespace

std::string route_metrics_text(const RouterView& view, const HttpServerStats& http,
                               const ResponseCounts& responses) {
  PrometheusText text;
  write_http_metrics(text, http, responses);
  text.gauge("jige_route:num_requests_waiting", "Requests that wait for room at a server.",
             as_metric(view.waiting));
  text.gauge("jige_route:num_requests_running", "Requests at servers.", as_metric(view.in_flight));
  text.gauge("jige_route:expected_answer_tokens", "What an answer is expected to have.",
             view.expected_answer_tokens);
  const RouterTotals& totals = view.totals;
  const std::pair<const char*, int64_t> ends[] = {{"answered", totals.answered},
                                                  {"cancelled", totals.cancelled},
                                                  {"cut", totals.cut},
                                                  {"no_model", totals.no_model},
                                                  {"no_server", totals.no_server},
                                                  {"queue_full", totals.queue_full},
                                                  {"refused", totals.refused},
                                                  {"lost", totals.lost}};
  std::vector<MetricSample> samples;
  for (const auto& [end, count] : ends) {
    samples.push_back({.labels = {{"end", end}}, .value = as_metric(count)});
  }
  text.counter("jige_route:ended_total", "Requests by how they ended.", samples);
  write_servers(text, view);
  write_counts(text, view);
  return text.take();
}

Json route_top_json(const RouterView& view) {
  Json servers = Json::array();
  for (const RouteServerView& one : view.servers) {
    const RouteServerCounts& counts = one.server->counts;
    const auto first = one.server->first_byte_seconds.snapshot();
    servers.push_back({{"address", one.address},
                       {"state", state_name(one.status)},
                       {"trouble", one.server->trouble()},
                       {"models", one.server->model_names()},
                       {"requests", one.status.requests},
                       {"work_tokens", one.status.work},
                       {"known_blocks", one.status.known_blocks},
                       {"other_requests", one.status.others.running + one.status.others.waiting},
                       {"prompt_speed", one.status.speed.prompt},
                       {"answer_speed", one.status.speed.answer},
                       {"prompt_tokens_per_second", one.rates.prompt},
                       {"answer_tokens_per_second", one.rates.answer},
                       {"requests_total", counts.requests},
                       {"retries_total", counts.retries},
                       {"refused_total", counts.refused},
                       {"failed_total", counts.connect_failed + counts.broke + counts.silent},
                       {"server_errors_total", counts.server_errors},
                       {"opened_total", counts.opened},
                       {"opened_probe_total", counts.opened_probes},
                       {"reused_total", counts.reused},
                       {"stale_total", counts.stale},
                       {"connections_idle", one.server->idle.count()},
                       {"prompt_tokens_total", counts.prompt_tokens},
                       {"known_tokens_total", counts.known_tokens},
                       {"first_byte_seconds_p50", first.quantile(0.5)},
                       {"first_byte_seconds_p99", first.quantile(0.99)}});
  }
  return {{"router", true},
          {"policy", view.rule},
          {"waiting_requests", view.waiting},
          {"running", view.in_flight},
          {"expected_answer_tokens", view.expected_answer_tokens},
          {"servers", std::move(servers)}};
}

Json routed_models(const RouterView& view) {
  Json all = Json::array();
  std::set<std::string> names;
  for (const RouteServerView& one : view.servers) {
    if (one.status.leaving) continue;
    for (const Json& model : one.server->models()) {
      if (names.insert(model["id"].get<std::string>()).second) all.push_back(model);
    }
  }
  return all;
}

}  // namespace jige::api
