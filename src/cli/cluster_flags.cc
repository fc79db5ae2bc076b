#include "cli/cluster_flags.h"

#include <fmt/format.h>

#include "base/file.h"
#include "cli/flags.h"
#include "cluster/model_catalogue.h"
#include "cluster/trace_fields.h"
#include "cluster/trace_reader.h"

namespace jige::cli {
namespace {

// Seeds of histories lie apart from those of runs.
constexpr uint64_t kHistorySeeds = 1'000'003;
constexpr double kLoadMin = 0.01, kLoadMax = 10;

}  // namespace

void ClusterFlags::declare_policies(Flags& flags) {
  flags.number("--noise X", noise_, {.min = 1, .max = 1000},
               "lengths that policies are told are wrong by up to this factor");
  flags.text("--learned FILE", learned_,
             "network of the policy `learned`, from jige cluster train-policy");
}

void ClusterFlags::declare(Flags& flags) {
  flags.section("Cluster");
  flags.text("--cluster SHAPE", cluster_,
             "LEAVESxNODESxGPUS[@GBIT][/OVERSUBSCRIPTION], deepshare, or fat-tree:K");
  flags.choice("--contention HOW", contention_, {"links", "table", "none"},
               "how jobs slow one another down");
  flags.choice("--fairness WHAT", fairness_, {"iterations", "bytes", "progress"},
               "what links share out equally");
  flags.choice("--phases HOW", phases_, {"collide", "spread"},
               "whether jobs communicate at the same time or in one another's pauses");
  flags.text("--table FILE", table_, "slowdown of pairs as CSV, for --contention table");
  flags.section("Jobs");
  flags.text("--trace FILE", trace_, "a trace instead of generated jobs");
  flags.choice("--trace-format NAME", trace_format_,
               {"auto", "gavel", "muri", "tiresias", "alibaba", "swf"}, "what the file is");
  flags.integer("--jobs N", jobs_, {.min = 1, .max = 10'000'000},
                "jobs, at most so many of a trace");
  flags.text("--sizes MIX", sizes_, "GPUs: philly, distributed, single, or GPUS:WEIGHT,...");
  flags.number("--fixed-shapes X", fixed_shapes_, {.min = 0, .max = 1},
               "share of jobs that ask for equal parts on a number of nodes, two or more");
  flags.text("--lengths SECONDS", lengths_,
             "alone: 600, uniform:LOW:HIGH, exp:MEAN or lognormal:MEDIAN:SIGMA");
  flags.text("--models MIX", models_,
             "what they train: low, medium, heavy (communication) or all; of a trace those it does "
             "not name");
  flags.number("--burst N", burst_, {.min = 1, .max = 1000}, "mean number that arrive together");
}

Status ClusterFlags::read_jobs(ClusterScene& scene) const {
  JIGE_TRY(const std::vector<double> mix, cluster::model_mix(models_, "--models"));
  JIGE_TRY(const cluster::SizeMix sizes, cluster::parse_sizes(sizes_, "--sizes"));
  JIGE_TRY(const cluster::LengthDistribution lengths,
           cluster::parse_lengths(lengths_, "--lengths"));
  if (trace_.empty()) {
    scene.generated = {.job_count = jobs_,
                       .burst = burst_,
                       .sizes = sizes,
                       .fixed_share = fixed_shapes_,
                       .lengths = lengths,
                       .models = mix};
    scene.text = fmt::format(
        "{} generated jobs, sizes {}, fixed shapes {:g}, lengths {}, models {}: all of it assumed",
        jobs_, sizes_, fixed_shapes_, lengths_, models_);
    return {};
  }
  JIGE_TRY(const std::string text, read_file(trace_));
  cluster::TraceOptions options{.jobs_max = jobs_, .models = mix};
  if (trace_format_ == "auto") {
    JIGE_TRY(options.format, cluster::guess_trace_format(text, trace_));
  }
  for (int i = 0; i < cluster::kTraceFormatCount; ++i) {
    const auto format = static_cast<cluster::TraceFormat>(i);
    if (trace_format_ == cluster::trace_format_name(format)) options.format = format;
  }
  JIGE_TRY(scene.trace, cluster::read_trace(text, trace_, options, scene.spec));
  scene.text = scene.trace->provenance;
  if (scene.trace->skipped > 0) {
    scene.text +=
        fmt::format("; {} records without GPU or run time left out", scene.trace->skipped);
  }
  return {};
}

Status ClusterFlags::read_contention(ClusterScene& scene) const {
  using cluster::Fairness;
  scene.contention = contention_;
  scene.links.fairness = fairness_ == "iterations" ? Fairness::kIterations
                         : fairness_ == "bytes"    ? Fairness::kBytes
                                                   : Fairness::kProgress;
  scene.links.phases = phases_ == "collide" ? cluster::Phases::kCollide : cluster::Phases::kSpread;
  if (contention_ != "table") return {};
  if (table_.empty()) {
    return fail(Code::kInvalidArgument, "--contention table needs --table FILE");
  }
  JIGE_TRY(const std::string text, read_file(table_));
  JIGE_TRY(scene.table, cluster::SlowdownTable::parse(text, table_));
  return {};
}

Result<ClusterScene> ClusterFlags::scene() const {
  ClusterScene scene;
  JIGE_TRY(scene.spec, cluster::parse_cluster(cluster_, "--cluster"));
  scene.noise = noise_;
  JIGE_DO(read_jobs(scene));
  JIGE_DO(read_contention(scene));
  if (!learned_.empty()) {
    JIGE_TRY(const std::string text, read_file(learned_));
    JIGE_TRY(cluster::PolicyNetwork network, cluster::PolicyNetwork::from_json(text, learned_));
    if (network.feature_count() != cluster::kPolicyFeatures) {
      return fail(Code::kUnsupported, "{}: looks at {} features; this build has {}", learned_,
                  network.feature_count(), cluster::kPolicyFeatures);
    }
    scene.network = std::make_shared<cluster::PolicyNetwork>(std::move(network));
  }
  const std::string network = contention_ == "links"
                                  ? fmt::format("max-min of {}, phases {}", fairness_, phases_)
                              : contention_ == "table" ? fmt::format("pairs of {}", table_)
                                                       : "no contention";
  scene.text =
      fmt::format("SIMULATED {}; {}; {}", cluster::describe(scene.spec), network, scene.text);
  return scene;
}

cluster::Workload ClusterScene::workload(uint64_t seed, std::optional<double> load) const {
  if (trace) {
    cluster::Workload workload = *trace;
    if (load) cluster::rescale_load(workload, spec, *load);
    return workload;
  }
  cluster::WorkloadOptions options = generated;
  options.seed = seed;
  if (load) options.load = *load;
  return cluster::make_workload(options, spec);
}

std::unique_ptr<cluster::Contention> ClusterScene::make_contention(
    const cluster::Workload& workload) const {
  if (table) return cluster::make_table_contention(spec, *table, workload.models);
  if (contention == "none") return cluster::make_no_contention(spec);
  return cluster::make_link_contention(spec, links);
}

cluster::PolicyContext ClusterScene::policy_context(uint64_t seed) const {
  return {
      .seed = seed,
      .noise = noise,
      .history_gpu_s = cluster::service_gpu_s(workload(seed + kHistorySeeds, std::nullopt), spec),
      .network = network};
}

Result<std::vector<double>> read_loads(const std::string& text, std::string_view flag) {
  std::vector<double> loads;
  for (const std::string& item : cluster::split_at(text, ',')) {
    const std::optional<double> load = cluster::parse_double(item);
    if (!load || *load < kLoadMin || *load > kLoadMax) {
      return fail(Code::kInvalidArgument,
                  "{}: \"{}\" is no load; give numbers from {} to {} with commas, such as 0.5,0.9",
                  flag, item, kLoadMin, kLoadMax);
    }
    loads.push_back(*load);
  }
  return loads;
}

}  // namespace jige::cli
