#include "cli/cluster_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/file.h"
#include "base/split.h"
#include "cli/flags.h"
#include "cluster/model_catalogue.h"
#include "cluster/published_rounds.h"
#include "cluster/trace_fields.h"
#include "cluster/trace_reader.h"

namespace jige::cli {
namespace {

// What names no file of its kind, such as /dev/zero, is refused before it fills the memory.
constexpr size_t kTraceBytesMax = size_t{256} << 20;
constexpr size_t kTableBytesMax = size_t{4} << 20;
constexpr size_t kNetworkBytesMax = size_t{64} << 20;

// Seeds of histories lie apart from those of runs.
constexpr uint64_t kHistorySeeds = 1'000'003;
constexpr double kLoadMin = 0.01, kLoadMax = 10;

}  // namespace

void ClusterFlags::declare_policies(Flags& flags) {
  flags.number("--noise X", noise_, {.min = 1, .max = 1000},
               "lengths that policies are told are wrong by up to this factor");
  flags.text(
      "--learned FILE", learned_,
      "network of the policy `learned`, from jige cluster train-policy; or NAME=FILE,... for "
      "policies learned:NAME");
}

void ClusterFlags::declare(Flags& flags) {
  flags_ = &flags;
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
  flags.text("--colocate FILE", colocate_,
             "let compatible jobs share GPUs: what each keeps of its speed, as pairs in CSV");
  flags.section("Jobs");
  flags.text("--trace FILE", trace_, "a trace instead of generated jobs");
  flags.choice("--trace-format NAME", trace_format_,
               {"auto", "gavel", "muri", "tiresias", "alibaba", "swf", "deepshare"},
               "what the file is");
  flags.text("--rates FILE", rates_,
             "samples a second by type as CSV, for a deepshare trace, whose jobs count samples");
  flags.choice("--spread HOW", spread_, {"fewest", "widest"},
               "nodes of a deepshare trace's jobs, of those that --rates has");
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

Status ClusterFlags::check_given() const {
  const auto first_given = [&](std::initializer_list<const char*> names) {
    const auto found = std::ranges::find_if(names, [&](auto name) { return flags_->given(name); });
    return found == names.end() ? nullptr : *found;
  };
  if (const char* name = first_given({"--sizes", "--fixed-shapes", "--lengths", "--burst"});
      name && !trace_.empty()) {
    return fail(Code::kInvalidArgument,
                "{} is about generated jobs, and --trace {} has jobs; give one", name, trace_);
  }
  if (const char* name = first_given({"--trace-format", "--rates", "--spread"});
      name && trace_.empty()) {
    return fail(Code::kInvalidArgument, "{} is about a trace; give --trace FILE, or leave it out",
                name);
  }
  if (!table_.empty() && contention_ != "table") {
    return fail(Code::kInvalidArgument,
                "--table {} is for --contention table; give both, or leave it out", table_);
  }
  if (const char* name = first_given({"--fairness", "--phases"}); name && contention_ != "links") {
    return fail(Code::kInvalidArgument, "{} is about --contention links, and {} is given", name,
                contention_);
  }
  return {};
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
  return read_trace(scene, mix);
}

Status ClusterFlags::read_trace(ClusterScene& scene, const std::vector<double>& mix) const {
  JIGE_TRY(const std::string text, read_file(trace_, kTraceBytesMax));
  if (trace_format_ == "deepshare" || (trace_format_ == "auto" && text.starts_with('{'))) {
    if (rates_.empty()) {
      return fail(Code::kInvalidArgument, "{}: its jobs count samples; give --rates FILE", trace_);
    }
    JIGE_TRY(const std::string rates, read_file(rates_, kTableBytesMax));
    JIGE_TRY(scene.rates, cluster::RateTable::parse(rates, rates_));
    JIGE_TRY(scene.samples, cluster::parse_sample_trace(text, trace_));
    scene.samples.resize(std::min(scene.samples.size(), static_cast<size_t>(jobs_)));
    const auto spread = spread_ == "fewest" ? cluster::Spread::kFewest : cluster::Spread::kWidest;
    JIGE_TRY(scene.trace,
             cluster::to_workload(scene.samples, *scene.rates, spread, scene.spec, trace_));
    scene.text = scene.trace->provenance;
    return {};
  }
  if (flags_->given("--rates") || flags_->given("--spread")) {
    return fail(Code::kInvalidArgument,
                "--rates and --spread are about traces of deepshare, and {} is none", trace_);
  }
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
  if (!colocate_.empty()) {
    JIGE_TRY(const std::string text, read_file(colocate_, kTableBytesMax));
    JIGE_TRY(scene.colocation, cluster::SlowdownTable::parse(text, colocate_));
  }
  if (contention_ != "table") return {};
  if (table_.empty()) {
    return fail(Code::kInvalidArgument, "--contention table needs --table FILE");
  }
  JIGE_TRY(const std::string text, read_file(table_, kTableBytesMax));
  JIGE_TRY(scene.table, cluster::SlowdownTable::parse(text, table_));
  return {};
}

Status ClusterFlags::read_networks(ClusterScene& scene) const {
  if (learned_.empty()) return {};
  for (const std::string_view item : split_at(learned_, ',')) {
    const size_t equals = item.find('=');
    const std::string name(equals == std::string::npos ? "" : item.substr(0, equals));
    const std::string path(equals == std::string::npos ? item : item.substr(equals + 1));
    JIGE_TRY(scene.networks[name], read_policy_network(path));
  }
  return {};
}

Result<std::shared_ptr<const cluster::PolicyNetwork>> read_policy_network(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kNetworkBytesMax));
  JIGE_TRY(cluster::PolicyNetwork network, cluster::PolicyNetwork::from_json(text, path));
  if (network.feature_count() != cluster::kPolicyFeatures) {
    return fail(Code::kUnsupported, "{}: looks at {} features; this build has {}", path,
                network.feature_count(), cluster::kPolicyFeatures);
  }
  return std::make_shared<const cluster::PolicyNetwork>(std::move(network));
}

Result<ClusterScene> ClusterFlags::scene() const {
  JIGE_DO(check_given());
  ClusterScene scene;
  JIGE_TRY(scene.spec, cluster::parse_cluster(cluster_, "--cluster"));
  scene.noise = noise_;
  JIGE_DO(read_jobs(scene));
  JIGE_DO(read_contention(scene));
  JIGE_DO(read_networks(scene));
  const std::string network = contention_ == "links"
                                  ? fmt::format("max-min of {}, phases {}", fairness_, phases_)
                              : contention_ == "table" ? fmt::format("pairs of {}", table_)
                                                       : "no contention";
  if (!colocate_.empty()) {
    scene.text += fmt::format("; compatible jobs share GPUs as {} has it", colocate_);
  }
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

Result<std::unique_ptr<cluster::Policy>> ClusterScene::make_policy(const std::string& name,
                                                                   std::string_view flag,
                                                                   uint64_t seed) const {
  const size_t colon = name.find(':');
  const size_t end = std::min(name.find_first_of("+/"), name.size());
  std::string plain = name, network;
  if (colon < end) {
    network = name.substr(colon + 1, end - colon - 1);
    plain.erase(colon, end - colon);
  }
  const auto found = networks.find(network);
  if (!network.empty() && found == networks.end()) {
    return fail(Code::kInvalidArgument, "{}: --learned names no \"{}\"", flag, network);
  }
  cluster::PolicyContext context{.seed = seed, .noise = noise};
  // History for Gittins: other generated jobs, or the trace itself.
  context.history_gpu_s =
      cluster::service_gpu_s(workload(seed + kHistorySeeds, std::nullopt), spec);
  if (found != networks.end()) context.network = found->second;
  return cluster::make_policy(plain, flag, context);
}

Status ClusterScene::check_policy(const std::string& name, std::string_view flag) const {
  if (cluster::round_rules(name)) {
    if (rates && table) return {};
    return fail(Code::kInvalidArgument,
                "{}: {} needs --trace-format deepshare with --rates and --contention table", flag,
                name);
  }
  const auto policy = make_policy(name, flag, 1);
  if (!policy) return tl::unexpected<Error>(policy.error());
  return {};
}

Result<cluster::SimulationResult> ClusterScene::simulate(
    const std::string& policy, const cluster::Workload& workload, uint64_t seed,
    const cluster::SimulationOptions& options) const {
  if (const auto rules = cluster::round_rules(policy)) {
    return cluster::simulate_rounds(spec, samples, *rates, *table, *rules, options.cancel);
  }
  JIGE_TRY(const std::unique_ptr<cluster::Policy> made, make_policy(policy, "--policy", seed));
  cluster::SimulationOptions shared = options;
  if (colocation) {
    shared.colocation = std::make_shared<cluster::Colocation>(*colocation, workload.models);
  }
  return cluster::simulate(spec, workload, make_contention(workload), *made, shared);
}

Result<std::vector<double>> read_loads(const std::string& text, std::string_view flag) {
  std::vector<double> loads;
  for (const std::string_view item : split_at(text, ',')) {
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
