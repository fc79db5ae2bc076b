#include "cluster/workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/split.h"
#include "cluster/free_gpus.h"
#include "cluster/model_catalogue.h"
#include "cluster/trace_fields.h"
#include "cluster/traffic.h"

namespace jige::cluster {
namespace {

using Kind = LengthDistribution::Kind;

constexpr double kSpanMax_ns = 2e18;

// "name:a:b" with `count` numbers above zero.
bool read_numbers(std::string_view text, std::string_view name, std::span<double*> numbers) {
  const std::vector<std::string_view> parts = split_at(text, ':');
  if (parts[0] != name || parts.size() != numbers.size() + 1) return false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::optional<double> value = parse_double(parts[i + 1]);
    if (!value || *value <= 0 || *value > kLengthMax_s) return false;
    *numbers[i] = *value;
  }
  return true;
}

int32_t draw_size(const SizeMix& sizes, Rng& rng) {
  double total = 0;
  for (const auto& [gpus, weight] : sizes) total += weight;
  double left = rng.uniform() * total;
  for (const auto& [gpus, weight] : sizes) {
    left -= weight;
    if (left < 0) return gpus;
  }
  return sizes.back().first;
}

// Numbers of nodes on which the job can have equal parts, from two on.
int32_t draw_nodes(int32_t gpus, const ClusterSpec& spec, Rng& rng) {
  std::vector<int32_t> choices;
  for (int32_t nodes = 2; nodes <= std::min(gpus, spec.node_count()); ++nodes) {
    if (gpus % nodes == 0 && gpus / nodes <= spec.gpus_per_node) choices.push_back(nodes);
  }
  return choices.empty() ? 0 : choices[rng.below(choices.size())];
}

double service_ns(const Job& job, const ClusterSpec& spec) {
  return job.gpus * job.iterations * ideal_iteration_ns(job, spec);
}

double total_service_ns(const Workload& workload, const ClusterSpec& spec) {
  double total = 0;
  for (const Job& job : workload.jobs) {
    if (why_never(job, spec).empty()) total += service_ns(job, spec);
  }
  return total;
}

}  // namespace

double LengthDistribution::draw_s(Rng& rng) const {
  double length_s = a;
  if (kind == Kind::kUniform) length_s = a + (b - a) * rng.uniform();
  if (kind == Kind::kExponential) length_s = -a * std::log(1 - rng.uniform());
  if (kind == Kind::kLogNormal) length_s = a * std::exp(b * rng.normal());
  return std::clamp(length_s, kind == Kind::kFixed ? a : std::min(1.0, a), kLengthMax_s);
}

Result<LengthDistribution> parse_lengths(std::string_view text, std::string_view flag) {
  LengthDistribution lengths;
  double* both[] = {&lengths.a, &lengths.b};
  double* first[] = {&lengths.a};
  if (read_numbers(text, "lognormal", both) && lengths.b <= 10) return lengths;
  lengths.kind = Kind::kUniform;
  if (read_numbers(text, "uniform", both) && lengths.a <= lengths.b) return lengths;
  lengths.kind = Kind::kExponential;
  if (read_numbers(text, "exp", first)) return lengths;
  lengths.kind = Kind::kFixed;
  const std::string named = "fixed:" + std::string(text);
  if (read_numbers(named, "fixed", first)) return lengths;
  return fail(Code::kInvalidArgument,
              "{}: \"{}\" is no length; give seconds such as 600, uniform:60:3600, exp:1200 or "
              "lognormal:MEDIAN:SIGMA, each above 0 and at most {:g}",
              flag, text, kLengthMax_s);
}

Result<SizeMix> parse_sizes(std::string_view text, std::string_view flag) {
  if (text == "philly") return SizeMix{{1, 8328}, {2, 410}, {4, 1235}, {8, 969}, {16, 218}};
  if (text == "distributed") return SizeMix{{2, 1}, {4, 2}, {8, 3}, {16, 3}, {32, 1}};
  if (text == "single") return SizeMix{{1, 1}};
  SizeMix sizes;
  for (const std::string_view item : split_at(text, ',')) {
    const std::vector<std::string_view> parts = split_at(item, ':');
    const std::optional<double> gpus = parse_double(parts[0]);
    const std::optional<double> weight = parts.size() == 2 ? parse_double(parts[1]) : 1.0;
    if (parts.size() > 2 || !gpus || !weight || *gpus < 1 || *gpus > 1e6 ||
        *gpus != std::floor(*gpus) || *weight <= 0 || *weight > 1e9) {
      return fail(Code::kInvalidArgument,
                  "{}: \"{}\" is no mix of sizes; give philly, distributed, single or GPUS:WEIGHT "
                  "with commas, such as 1:3,8:1",
                  flag, text);
    }
    sizes.emplace_back(static_cast<int32_t>(*gpus), *weight);
  }
  return sizes;
}

void set_length(Job& job, double length_s, const ClusterSpec& spec) {
  job.iterations = length_s * kSecond / ideal_iteration_ns(job, spec);
}

Workload make_workload(const WorkloadOptions& options, const ClusterSpec& spec) {
  Rng gaps(derive_key(options.seed, "cluster arrivals"));
  Rng kinds(derive_key(options.seed, "cluster jobs"));
  Workload workload{.models = catalogue_names(), .jobs = {}, .provenance = {}};
  double now_s = 0;
  for (int64_t i = 0; i < options.job_count; ++i) {
    Job job;
    job.name = fmt::format("{}", i);
    // With bursts a job comes together with the one before unless it begins the next burst.
    const bool next_burst = gaps.uniform() * options.burst < 1;
    const double gap_s = -std::log(1 - gaps.uniform());
    if (i > 0 && next_burst) now_s += gap_s;
    job.arrival_ns = static_cast<int64_t>(now_s * kSecond);
    job.gpus = std::min(draw_size(options.sizes, kinds), spec.gpu_count());
    const double length_s = options.lengths.draw_s(kinds);
    if (options.fixed_share > 0 && kinds.uniform() < options.fixed_share) {
      job.nodes = draw_nodes(job.gpus, spec, kinds);
    }
    if (!options.models.empty()) assign_model(job, draw_model(options.models, kinds));
    set_length(job, length_s, spec);
    workload.jobs.push_back(std::move(job));
  }
  rescale_load(workload, spec, options.load);
  workload.provenance = fmt::format(
      "generated from seed {}: sizes, lengths, arrivals and models are assumptions", options.seed);
  return workload;
}

double offered_load(const Workload& workload, const ClusterSpec& spec) {
  if (workload.jobs.empty()) return 0;
  const int64_t span_ns = workload.jobs.back().arrival_ns - workload.jobs.front().arrival_ns;
  if (span_ns <= 0) return 0;
  return total_service_ns(workload, spec) / static_cast<double>(span_ns) / spec.gpu_count();
}

void rescale_load(Workload& workload, const ClusterSpec& spec, double load) {
  if (workload.jobs.empty()) return;
  const int64_t first_ns = workload.jobs.front().arrival_ns;
  const auto span_ns = static_cast<double>(workload.jobs.back().arrival_ns - first_ns);
  if (span_ns <= 0) return;
  const double wanted_ns =
      std::min(kSpanMax_ns, total_service_ns(workload, spec) / load / spec.gpu_count());
  for (Job& job : workload.jobs) {
    const double share = static_cast<double>(job.arrival_ns - first_ns) / span_ns;
    job.arrival_ns = static_cast<int64_t>(share * wanted_ns);
  }
}

std::vector<double> service_gpu_s(const Workload& workload, const ClusterSpec& spec) {
  std::vector<double> services;
  for (const Job& job : workload.jobs) {
    if (why_never(job, spec).empty()) services.push_back(service_ns(job, spec) / kSecond);
  }
  return services;
}

}  // namespace jige::cluster
