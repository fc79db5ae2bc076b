#include "cluster/sample_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "cluster/model_catalogue.h"
#include "cluster/trace_fields.h"
#include "cluster/trace_reader.h"
#include "cluster/workload.h"

namespace jige::cluster {
namespace {

constexpr double kSamplesMax = 1e15, kRateMax = 1e12;
constexpr int64_t kRestart_ns = 60 * kSecond;  // of models that the catalogue does not have

int32_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto index = std::ranges::find(names, name) - names.begin();
  if (index == std::ssize(names)) names.push_back(name);
  return static_cast<int32_t>(index);
}

}  // namespace

Result<std::vector<SampleJob>> parse_sample_trace(std::string_view json, std::string_view where) {
  JIGE_TRY(const Json trace, parse_json(json, where));
  if (!trace.is_object() || trace.empty()) {
    return fail(Code::kCorrupt, "{}: holds no jobs by number", where);
  }
  std::vector<SampleJob> jobs;
  for (const auto& [name, fields] : trace.items()) {
    const std::string here = fmt::format("{}: job {}", where, name);
    if (!fields.is_object()) return fail(Code::kCorrupt, "{}: is no object", here);
    SampleJob job{.name = name};
    const auto corrupt = [&](const Error& error) {
      return fail(Code::kCorrupt, "{}", error.message);
    };
    const Result<std::string> model = get_string(fields, "model", here);
    if (!model) return corrupt(model.error());
    const Result<int64_t> gpus = get_int(fields, "gpu_demand", here);
    if (!gpus) return corrupt(gpus.error());
    const Result<double> samples = get_number(fields, "total_samples_to_train", here);
    if (!samples) return corrupt(samples.error());
    if (*gpus < 1 || *gpus > kTraceGpusMax) {
      return fail(Code::kCorrupt, "{}: gpu_demand {} is not in [1, {}]", here, *gpus,
                  kTraceGpusMax);
    }
    if (!(*samples > 0) || *samples > kSamplesMax) {
      return fail(Code::kCorrupt, "{}: total_samples_to_train {} is not in (0, {:g}]", here,
                  *samples, kSamplesMax);
    }
    job.model = *model;
    job.gpus = static_cast<int32_t>(*gpus);
    job.samples = *samples;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

Result<RateTable> RateTable::parse(std::string_view csv, std::string_view where) {
  RateTable table;
  Lines lines(csv);
  while (lines.next()) {
    if (lines.number() == 1 || lines.line().empty()) continue;
    const std::vector<std::string> cells = split_csv(lines.line());
    const std::optional<JobType> type = parse_job_type(cells[0]);
    if (cells.size() != 2 || !type) {
      return fail(Code::kCorrupt, "{}:{}: is no type and rate such as \"MoE,4,2\",17.68", where,
                  lines.number());
    }
    const std::optional<double> rate = parse_double(cells[1]);
    if (!rate || *rate <= 0 || *rate > kRateMax) {
      return fail(Code::kCorrupt, "{}:{}: \"{}\" is no rate in (0, {:g}]", where, lines.number(),
                  cells[1], kRateMax);
    }
    if (!table.rates_.emplace(*type, *rate).second) {
      return fail(Code::kCorrupt, "{}:{}: type \"{}\" comes twice", where, lines.number(),
                  cells[0]);
    }
  }
  if (table.rates_.empty()) return fail(Code::kCorrupt, "{}: holds no rate", where);
  return table;
}

double RateTable::rate(const JobType& type) const {
  const auto found = rates_.find(type);
  return found == rates_.end() ? 0 : found->second;
}

std::vector<int32_t> RateTable::spreads(const SampleJob& job, const ClusterSpec& spec) const {
  std::vector<int32_t> spreads;
  const int32_t nodes_max = std::min(job.gpus, spec.node_count());
  for (int32_t nodes = 2; nodes <= nodes_max; ++nodes) {
    if (job.gpus % nodes != 0 || job.gpus / nodes > spec.gpus_per_node) continue;
    if (rate({job.model, job.gpus, nodes}) > 0) spreads.push_back(nodes);
  }
  return spreads;
}

Result<Workload> to_workload(const std::vector<SampleJob>& jobs, const RateTable& rates,
                             Spread spread, const ClusterSpec& spec, std::string_view where) {
  Workload workload;
  for (const SampleJob& traced : jobs) {
    const std::vector<int32_t> spreads = rates.spreads(traced, spec);
    if (spreads.empty()) {
      return fail(Code::kInvalidArgument,
                  "{}: job {}: no rate of {} on {} GPUs of two or more nodes of this cluster",
                  where, traced.name, traced.model, traced.gpus);
    }
    Job job;
    job.name = traced.name;
    job.model = index_of(workload.models, traced.model);
    job.gpus = traced.gpus;
    job.nodes = spread == Spread::kFewest ? spreads.front() : spreads.back();
    const double rate = rates.rate({traced.model, traced.gpus, job.nodes});
    job.iterations = traced.samples / rate;
    if (!(job.iterations <= kLengthMax_s)) {
      return fail(Code::kCorrupt,
                  "{}: job {}: {:g} samples at {:g} a second take {:g} s; at most {:g} s are "
                  "simulated",
                  where, traced.name, traced.samples, rate, job.iterations, kLengthMax_s);
    }
    const int32_t known = model_named(traced.model);
    job.restart_ns = kRestart_ns;
    if (known >= 0) {
      const double restart_s = model_catalogue()[static_cast<size_t>(known)].restart_s;
      job.restart_ns = static_cast<int64_t>(restart_s * kSecond);
    }
    workload.jobs.push_back(std::move(job));
  }
  workload.provenance = fmt::format(
      "{}: models, GPUs and samples traced, all at once; lengths by measured rates on the {} "
      "nodes; costs of restarts assigned by model",
      where, spread == Spread::kFewest ? "fewest" : "most");
  return workload;
}

}  // namespace jige::cluster
