#include "api/server_metrics.h"

#include <nlohmann/json.hpp>

#include "api/answer_format.h"
#include "api/prometheus_text.h"

namespace jige::api {
namespace {

double as_double(int64_t number) { return static_cast<double>(number); }

void write_state(PrometheusText& text, const serve::EngineStatus& status) {
  text.gauge("jige:num_requests_running", "Answers being made.",
             as_double(status.running_sequences));
  text.gauge("jige:num_requests_waiting", "Requests that wait to begin.",
             as_double(status.waiting_requests));
  text.gauge("jige:num_prompt_tokens_waiting", "Prompt tokens of requests that wait.",
             as_double(status.waiting_prompt_tokens));
  text.gauge("jige:num_requests_preempted", "Answers that gave their cache back and wait for it.",
             as_double(status.preempted_sequences));
  text.gauge("jige:kv_cache_usage_perc", "Share of cache blocks in use, from 0 to 1.",
             status.kv_usage());
  text.gauge("jige:kv_cache_blocks", "Cache blocks in all.", as_double(status.kv_blocks));
  text.gauge("jige:kv_cache_blocks_cached", "Unused cache blocks that hold known prefixes.",
             as_double(status.kv_blocks_cached));
  text.counter("jige:kv_cache_evictions_total", "Known prefixes dropped for room.",
               as_double(status.kv_evictions));
  text.gauge("jige:engine_stalled", "1 when work exists and no iteration completes.",
             status.stalled ? 1 : 0);
  text.gauge("jige:layers_lost", "1 while layers on other machines are lost.",
             status.layers_lost ? 1 : 0);
  text.gauge("jige:uptime_seconds", "Seconds since the engine began.", status.uptime_seconds);
}

// Where there is no plan there is nothing to differ from.
void write_drift(PrometheusText& text, const std::optional<plan::DriftState>& drift) {
  if (!drift) return;
  text.gauge("jige:plan_drifted", "1 when requests are no longer like those of the plan.",
             drift->drifted ? 1 : 0);
  text.gauge(
      "jige:plan_prompt_distance",
      "Largest difference of the shares of prompts up to a length, of the plan and the last.",
      drift->prompt_distance);
  text.gauge("jige:plan_answer_distance", "The same of answers.", drift->answer_distance);
  text.gauge("jige:plan_rate_ratio", "Requests a second over those of the plan.",
             drift->rate_ratio);
}

void write_replan(PrometheusText& text, const std::optional<plan::ReplanStatus>& replan) {
  if (!replan) return;
  std::vector<MetricSample> samples;
  for (const plan::ReplanOutcome outcome : plan::kReplanOutcomes) {
    samples.push_back({.labels = {{"outcome", std::string(plan::replan_outcome_name(outcome))}},
                       .value = as_double(replan->outcomes[static_cast<size_t>(outcome)])});
  }
  text.counter("jige:replans_total", "Plans for drifted requests, by what came of them.", samples);
  text.gauge("jige:replanning", "1 while another plan is being made.", replan->planning ? 1 : 0);
}

Json replan_json(const plan::ReplanStatus& replan) {
  Json json{{"planning", replan.planning}};
  for (const plan::ReplanOutcome outcome : plan::kReplanOutcomes) {
    json[plan::replan_outcome_name(outcome)] = replan.outcomes[static_cast<size_t>(outcome)];
  }
  if (replan.outcome.empty()) return json;
  json["last"] = {{"outcome", replan.outcome},
                  {"text", replan.text},
                  {"planning_seconds", replan.planning_s},
                  {"age_seconds", replan.age_s}};
  if (!replan.file.empty()) json["last"]["file"] = replan.file;
  return json;
}

Json drift_json(const plan::DriftState& drift) {
  return {{"drifted", drift.drifted},
          {"looks", drift.looks},
          {"prompt_distance", drift.prompt_distance},
          {"answer_distance", drift.answer_distance},
          {"rate_ratio", drift.rate_ratio},
          {"prompt_tokens_mean", drift.prompt_tokens_mean},
          {"answer_tokens_mean", drift.answer_tokens_mean},
          {"requests_per_s", drift.rate_per_s}};
}

void write_guesses(PrometheusText& text, const plan::GuessCounts& guesses) {
  std::vector<MetricSample> guessed, right;
  for (const plan::GuessKindCounts& kind : guesses.by_kind()) {
    const std::vector<MetricLabel> labels = {{"source", std::string(kind.name)}};
    guessed.push_back({.labels = labels, .value = as_double(kind.guessed)});
    right.push_back({.labels = labels, .value = as_double(kind.right)});
  }
  text.counter("jige:guessed_tokens_total", "Tokens guessed and verified, by what they were from.",
               guessed);
  text.counter("jige:guessed_tokens_right_total", "Those of them that were right.", right);
}

Json guesses_json(const plan::GuessCounts& guesses) {
  Json all;
  for (const plan::GuessKindCounts& kind : guesses.by_kind()) {
    all[std::string(kind.name)] = {{"guessed", kind.guessed}, {"right", kind.right}};
  }
  return all;
}

void write_counters(PrometheusText& text, const serve::EngineCounters& counters) {
  text.counter("jige:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               as_double(counters.prefix_query_tokens));
  text.counter("jige:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
               as_double(counters.prefix_hit_tokens));
  text.counter("jige:num_preemptions_total", "Answers that had to give their cache back.",
               as_double(counters.preemptions));
  text.counter("jige:prompt_tokens_total", "Prompt tokens of requests that began to answer.",
               as_double(counters.prompt_tokens));
  text.counter("jige:generation_tokens_total", "Tokens generated.",
               as_double(counters.generated_tokens));
  text.counter("jige:spec_decode_num_draft_tokens_total", "Tokens guessed and verified.",
               as_double(counters.drafted_tokens));
  text.counter("jige:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.",
               as_double(counters.accepted_tokens));
  write_guesses(text, counters.guesses);
  text.counter("jige:draft_model_read_tokens_total",
               "Tokens of sequences that the draft model has read.",
               as_double(counters.draft_model_read_tokens));
  text.counter("jige:draft_model_known_tokens_total",
               "Tokens of sequences that it has found in its prefix cache.",
               as_double(counters.draft_model_known_tokens));
  text.counter("jige:computed_tokens_total", "Rows run through the model.",
               as_double(counters.computed_tokens));
  text.counter("jige:iterations_total", "Model iterations.", as_double(counters.iterations));
  text.counter("jige:layers_restored_total", "Times that lost layers on other machines came back.",
               as_double(counters.layers_restored));
  text.counter("jige:iterations_lost_total", "Iterations that failed.",
               as_double(counters.iterations_lost));
  text.counter("jige:requests_received_total", "Requests handed to the engine.",
               as_double(counters.requests_received));
  text.counter("jige:requests_refused_total", "Requests the engine refused.",
               as_double(counters.requests_refused));
  text.counter("jige:requests_failed_total", "Requests that failed while they ran.",
               as_double(counters.requests_failed));
  std::map<std::string, double> by_reason = {{"stop", 0}, {"length", 0}, {"abort", 0}};
  for (int i = 0; i < serve::kFinishReasonCount; ++i) {
    by_reason[std::string(wire_finish_reason(static_cast<serve::FinishReason>(i)))] +=
        as_double(counters.requests_finished[static_cast<size_t>(i)]);
  }
  std::vector<MetricSample> samples;
  for (const auto& [reason, count] : by_reason) {
    samples.push_back({.labels = {{"finished_reason", reason}}, .value = count});
  }
  text.counter("jige:request_success_total", "Requests answered, by what ended them.", samples);
}

void write_adapters(PrometheusText& text, const MetricsSource& source,
                    const serve::EngineCounters& counters) {
  const std::vector<ServedAdapter> adapters = source.adapters->list();
  if (adapters.empty()) return;
  std::vector<MetricSample> samples;
  for (const ServedAdapter& adapter : adapters) {
    const auto counted = counters.requests_by_adapter.find(adapter.number);
    const bool none = counted == counters.requests_by_adapter.end();
    samples.push_back(
        {.labels = {{"adapter", adapter.name}}, .value = none ? 0 : as_double(counted->second)});
  }
  text.counter("jige:adapter_requests_total", "Requests handed to the engine for an adapter.",
               samples);
}

void write_histograms(PrometheusText& text, const serve::EngineHistograms& all) {
  const auto write = [&](std::string_view name, std::string_view help,
                         const serve::Histogram& histogram) {
    text.histogram(name, help, histogram.snapshot());
  };
  write("jige:time_to_first_token_seconds", "From arrival to the first token.",
        all.first_token_seconds);
  write("jige:inter_token_latency_seconds", "Between tokens of one answer.",
        all.inter_token_seconds);
  write("jige:e2e_request_latency_seconds", "From arrival to the end.", all.total_seconds);
  write("jige:request_queue_time_seconds", "From arrival to the first iteration.",
        all.queue_seconds);
  write("jige:request_prefill_time_seconds", "From the first iteration to the first token.",
        all.prefill_seconds);
  write("jige:request_decode_time_seconds", "From the first token to the end.", all.decode_seconds);
  write("jige:request_prompt_tokens", "Prompt tokens of a request.", all.prompt_tokens);
  write("jige:request_generation_tokens", "Tokens generated for a request.", all.generated_tokens);
  write("jige:request_params_max_tokens", "max_tokens as asked for.", all.tokens_max);
  write("jige:request_params_n", "n as asked for.", all.choice_count);
  write("jige:iteration_tokens_total", "Tokens of one iteration.", all.iteration_tokens);
  write("jige:iteration_seconds", "Duration of one iteration.", all.iteration_seconds);
}

void write_images(PrometheusText& text, const std::optional<ImageReaderCounts>& images) {
  if (!images) return;
  const auto outcome = [](const char* name, int64_t count) {
    return MetricSample{.labels = {{"outcome", name}}, .value = as_double(count)};
  };
  text.counter("jige:image_requests_total", "Requests with images, by what came of these.",
               {outcome("read", images->read), outcome("refused", images->refused),
                outcome("failed", images->failed), outcome("cancelled", images->cancelled)});
  text.gauge("jige:num_image_requests_waiting", "Requests whose images wait to be read.",
             static_cast<double>(images->waiting));
  text.histogram("jige:image_queue_seconds",
                 "From a request's arrival until its images, decoded, are read by the model.",
                 images->queue_seconds);
  text.histogram("jige:image_decode_seconds", "Of the file of an image.", images->decode_seconds);
  text.histogram("jige:image_encode_seconds",
                 "Of an image that the model reads, with small ones that it reads in between.",
                 images->model.encode_seconds);
  text.counter("jige:image_rows_total", "Rows that came of these.", as_double(images->model.rows));
  text.counter("jige:images_known_total", "Images whose rows were kept, and not read again.",
               as_double(images->model.known));
  text.gauge("jige:image_rows_bytes", "Of rows that are kept or in use.",
             as_double(images->model.rows_bytes));
}

void write_roofline(PrometheusText& text, const serve::RooflineSample& recent,
                    const MachinePeaks& peaks) {
  text.gauge("jige:roofline_memory_bytes_per_second",
             "Bytes of weights and cache read a second, over the last busy seconds.",
             recent.bytes_per_s());
  text.gauge("jige:roofline_flops_per_second",
             "Arithmetic operations a second, over the last busy seconds.", recent.flops_per_s());
  text.gauge("jige:roofline_tokens_per_second", "Tokens computed a second, likewise.",
             recent.tokens_per_s());
  if (peaks.bytes_per_s > 0) {
    text.gauge("jige:roofline_memory_share", "Share of the machine's measured memory rate.",
               recent.bytes_per_s() / peaks.bytes_per_s);
  }
  if (peaks.flops_per_s > 0) {
    text.gauge("jige:roofline_flops_share", "Share of the machine's measured arithmetic rate.",
               recent.flops_per_s() / peaks.flops_per_s);
  }
}

Json row_json(const serve::RequestRow& row, const MetricsSource& source) {
  return {{"id", row.id},
          {"model",
           row.adapter == model::kNoAdapter ? source.model : source.adapters->name_of(row.adapter)},
          {"state", serve::request_state_name(row.state)},
          {"prompt_tokens", row.prompt_tokens},
          {"computed_tokens", row.computed_tokens},
          {"generated_tokens", row.generated_tokens},
          {"tokens_max", row.tokens_max},
          {"n", row.choice_count},
          {"preemptions", row.preemptions},
          {"priority", -static_cast<int64_t>(row.priority)},
          {"age_seconds", row.age_seconds}};
}

}  // namespace

void write_http_metrics(PrometheusText& text, const HttpServerStats& http,
                        const ResponseCounts& responses) {
  std::vector<MetricSample> samples;
  for (const auto& [key, count] : responses) {
    samples.push_back({.labels = {{"handler", key.first}, {"status", std::to_string(key.second)}},
                       .value = as_double(count)});
  }
  text.counter("jige:http_requests_total", "Answers by route and status.", samples);
  text.counter("jige:http_requests_refused_total",
               "Requests that no route saw: too large, too slow, no HTTP, of pages not allowed.",
               as_double(http.requests_refused));
  text.gauge("jige:http_connections_open", "Connections that are open.",
             as_double(http.connections_open));
  text.counter("jige:http_connections_refused_total", "Connections refused over the cap.",
               as_double(http.connections_refused));
  text.counter("jige:http_slow_readers_dropped_total", "Streams ended as nobody read them.",
               as_double(http.slow_readers_dropped));
}

std::string metrics_text(const MetricsSource& source) {
  PrometheusText text({{"model_name", source.model}});
  write_http_metrics(text, source.http, source.responses);
  if (source.engine) {
    const serve::EngineStatus status = source.engine->status();
    text.gauge("jige:embedding_dimensions", "Numbers of a vector; 0 where the model gives answers.",
               as_double(source.embedding_dimensions));
    write_state(text, status);
    write_drift(text, status.drift);
    write_replan(text, source.replan);
    write_counters(text, status.counters);
    write_adapters(text, source, status.counters);
    write_histograms(text, source.engine->histograms());
    write_images(text, source.images);
    write_roofline(text, status.recent, source.peaks);
  }
  return text.take();
}

Json top_json(const MetricsSource& source) {
  Json top = {{"model", source.model},
              {"loading", source.engine == nullptr},
              {"connections", source.http.connections_open}};
  if (!source.engine) return top;
  const serve::EngineStatus status = source.engine->status(true);
  const auto& histograms = source.engine->histograms();
  const auto first = histograms.first_token_seconds.snapshot();
  const auto between = histograms.inter_token_seconds.snapshot();
  Json adapters = Json::array();
  for (const ServedAdapter& adapter : source.adapters->list()) adapters.push_back(adapter.name);
  top["adapters"] = std::move(adapters);
  top["embedding_dimensions"] = source.embedding_dimensions;
  top["scheduling"] = plan::settings_json(status.settings);
  if (status.drift) top["drift"] = drift_json(*status.drift);
  if (source.replan) top["replan"] = replan_json(*source.replan);
  top["accepting"] = status.accepting;
  top["stalled"] = status.stalled || status.layers_lost;
  top["layers_lost"] = status.layers_lost;
  top["uptime_seconds"] = status.uptime_seconds;
  top["waiting_requests"] = status.waiting_requests;
  top["waiting_prompt_tokens"] = status.waiting_prompt_tokens;
  top["running"] = status.running_sequences;
  top["preempted"] = status.preempted_sequences;
  top["kv_usage"] = status.kv_usage();
  top["kv_blocks"] = status.kv_blocks;
  top["kv_blocks_live"] = status.kv_blocks_live;
  top["kv_blocks_cached"] = status.kv_blocks_cached;
  top["iterations"] = status.counters.iterations;
  top["generated_tokens"] = status.counters.generated_tokens;
  top["drafted_tokens"] = status.counters.drafted_tokens;
  top["accepted_tokens"] = status.counters.accepted_tokens;
  top["guesses"] = guesses_json(status.counters.guesses);
  top["last_iteration_tokens"] = status.last_iteration_tokens;
  top["last_iteration_seconds"] = status.last_iteration_seconds;
  top["tokens_per_second"] = status.recent.tokens_per_s();
  top["memory_bytes_per_second"] = status.recent.bytes_per_s();
  top["flops_per_second"] = status.recent.flops_per_s();
  top["first_token_seconds"] = {{"p50", first.quantile(0.5)}, {"p99", first.quantile(0.99)}};
  top["inter_token_seconds"] = {{"p50", between.quantile(0.5)}, {"p99", between.quantile(0.99)}};
  Json rows = Json::array();
  for (const serve::RequestRow& row : status.requests) rows.push_back(row_json(row, source));
  top["requests"] = std::move(rows);
  return top;
}

}  // namespace jige::api
