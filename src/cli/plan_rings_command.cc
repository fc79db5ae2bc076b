// jige plan rings: the ring that runs fastest when all its transfers run at once.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/link_bench.h"
#include "cli/node_ring_report.h"
#include "cli/output.h"
#include "cli/plan_progress.h"
#include "cli/ring_mix_report.h"
#include "cli/ring_plan_steps.h"
#include "cli/table.h"
#include "comm/ring_plan.h"
#include "plan/nccl_export.h"
#include "plan/steady.h"
#include "topology/topology_svg.h"

namespace jige::cli {
namespace {

constexpr double kMeasuredTolerance = 0.05;
constexpr double kNoGain = 1e-6;  // a relative gain that no line shows
constexpr const char* kOfAllReduces =
    "is about the all-reduces that --hosts and --shm run at the end; give one of these, or leave "
    "it out";

class PlanRingsCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Finds in which order, by which transfers and through which host buffers a ring over all "
        "devices should run, so that its slowest edge is fastest while all edges are busy. "
        "Measures sets of transfers, learns which get in each other's way, and goes on until "
        "nothing faster can be left or the budget ends. With --hosts the sets are measured over "
        "TCP, by the agents on these hosts; with --shm, --mpi or --gpus on this machine or by "
        "MPI; otherwise simulated from the description.");
    source_.declare(flags, "--topology");
    links_.declare(flags);
    flags.section("Several machines");
    flags.texts("--nodes FILES...", nodes_.nodes,
                "a ring over machines instead: the description or reference of each, in rank "
                "order; the same one twice means two machines alike");
    flags.toggle("--rails", nodes_.rails, "NICs reach only those of the same number");
    flags.number("--network-gb-per-s X", nodes_.network_gb_per_s, {.min = 0},
                 "between two NICs; 0: unlimited");
    flags.section("Search");
    flags.number("--budget-seconds S", options_.budget_s, {.min = 0, .max = 1e9},
                 "of measuring, as the links would take for it, the finalists included, and once "
                 "more for --rings, all-to-all and --message each; every transfer is measured "
                 "alone even beyond it");
    flags.integer("--keep N", keep_, {.min = 1, .max = 100}, "rings measured again at the end");
    flags.number("--tolerance X", tolerance_, {.min = 0, .max = 0.5},
                 "smaller gains, relative, are not looked for; 0, where rates are measured 0.05");
    flags.toggle("--no-symmetry", no_symmetry_, "measure also what looks alike");
    flags.toggle(
        "--no-collective", no_collective_,
        "with --hosts or --shm: choose by the transfers alone, without all-reduces at the end");
    flags.choice("--collective NAME", collective_, {"all-reduce", "all-to-all"},
                 "all-to-all: plan the rounds of one as well");
    flags.bytes("--message SIZE", message_bytes_,
                "of small all-reduces: plan double binary trees for them as well; with --hosts or "
                "--shm all-reduces of this size choose");
    flags.number("--latency-us X", latency_us_, {.min = 0, .max = 1e6},
                 "of a step, assumed where no all-reduces are run, to tell up to which size trees "
                 "are faster");
    flags.integer("--rings N", rings_max_, {.min = 1, .max = comm::kRingsMax},
                  "that share the data by weights, if together they carry more than one does");
    flags.section("Result");
    flags.text("-o,--out FILE", out_, "write the plan as JSON");
    flags.text("--svg FILE", svg_, "draw the ring");
    flags.text("--export-nccl FILE", nccl_,
               "write the orders as a graph file of NCCL, a channel or several a ring, and its "
               "environment "
               "beside it as FILE.env");
    flags.text("--export-msccl FILE", msccl_,
               "write the rings as an algorithm of MSCCL for all-reduce; with --message the trees "
               "beside them as FILE.trees");
    flags.text("--nccl-version X.Y", nccl_version_, "that shall read it; 2.18 and later");
    output_.declare(flags, "print the plan as one JSON object");
    flags.example("jige plan rings --reference pcie-8gpu-2numa-interleaved");
    flags.example("jige plan rings --hosts hosts.txt --store links.jsonl -o ring.json");
    flags.example(
        "jige plan rings --nodes pcie-8gpu-2numa pcie-8gpu-2numa pcie-8gpu-4numa --rails");
    flags.example("jige plan rings --reference dual-trunk-8host --collective all-to-all");
    flags.example("jige plan rings --reference pcie-8gpu-2numa --message 64K");
    flags.example("jige plan rings --reference two-trunk-4host --rings 2 -o ring.json");
    flags.example("jige plan rings --topology box.json -o ring.json --export-nccl graph.xml");
  }

  Status run() override {
    output_.apply();
    // Before anything is measured, which may take long.
    JIGE_DO(plan::parse_nccl_version(nccl_version_));
    JIGE_DO(check_use());
    const bool trees = !msccl_.empty() && message_bytes_ > 0;
    JIGE_DO(check_output_files({out_, svg_, nccl_, nccl_.empty() ? "" : nccl_ + ".env", msccl_,
                                trees ? msccl_ + ".trees" : ""}));
    options_.keep = static_cast<int32_t>(keep_);
    options_.symmetry = !no_symmetry_;
    options_.seed = static_cast<uint64_t>(links_.request.seed);
    options_.tolerance = tolerance_.value_or(0);
    if (!nodes_.nodes.empty()) return run_over_nodes();
    const InterruptScope interrupts;
    links_.request.budget_s = options_.budget_s;
    JIGE_TRY(const std::unique_ptr<LinkBench> bench, LinkBench::open(source_, links_));
    JIGE_TRY(const plan::RingProblem problem, bench->ring_problem(links_));
    if (!nccl_.empty()) JIGE_DO(plan::check_nccl_joins(bench->topology()));
    if (!bench->collectives()) {
      JIGE_DO(flags_->refuse({"--no-collective"}, kOfAllReduces));
    }
    const bool run_collectives = bench->collectives() && !no_collective_;
    if (bench->measures()) {
      // Noise would be taken for gains; and relabellings of hosts about whose network nothing is
      // known cost more to confirm than they save.
      options_.tolerance = tolerance_.value_or(kMeasuredTolerance);
      options_.symmetry = false;
    }
    const double budgets =
        1.0 + (rings_max_ > 1) + (collective_ == "all-to-all") + (message_bytes_ > 0);
    if (bench->measures()) warn_of_small_budget(*bench, problem);
    PlanProgress progress(bench->profiler(), budgets * options_.budget_s,
                          bench->measures() ? 0 : kSilentSeconds, output_.json || output_.quiet);
    options_.go_on = [&progress] {
      progress.draw();
      return !interrupted();
    };
    if (run_collectives) {
      options_.collective = ring_collective(problem, *bench->collectives(), progress);
    }
    const RingPlanRequest request{.rings_max = static_cast<int32_t>(rings_max_),
                                  .all_to_all = collective_ == "all-to-all",
                                  .message_bytes = message_bytes_,
                                  .latency_s = latency_us_ * 1e-6,
                                  .run_collectives = run_collectives,
                                  .nccl = nccl_,
                                  .nccl_version = nccl_version_,
                                  .msccl = msccl_};
    plan::RingPlan plan;
    Json json;
    std::string text;
    Status exported;
    const profile::ProfilerCounts before = bench->profiler().counts();
    const double budget_s = options_.budget_s;
    const auto left_s = [&] {
      return budgets * budget_s - (bench->profiler().counts().cost_s - before.cost_s);
    };
    const auto plan_all = [&]() -> Result<int32_t> {
      // Again with what is left, if rates change.
      options_.budget_s = std::max(0.0, left_s() / budgets);
      JIGE_TRY(plan, plan::plan_ring(problem, bench->profiler(), options_));
      RingPlanSteps steps(problem, plan, options_, *bench, request, progress);
      JIGE_DO(steps.run());
      json = std::move(steps.json());
      text = steps.text();
      exported = steps.exported();
      return plan.epoch;
    };
    JIGE_TRY(const plan::Steadiness steady,
             plan::until_rates_hold(bench->profiler(), left_s, plan_all));
    progress.finish();
    if (!steady.held) log_warn("{}", plan::rates_keep_changing(bench->profiler()).value().message);
    const std::string_view source = bench->profiler().source();
    if (!out_.empty()) JIGE_DO(write_file_atomic(out_, dump_json(json, 1) + "\n"));
    if (!svg_.empty()) JIGE_DO(draw(problem, plan, source));
    output_.json ? print_json(json) : print_text(report(problem, plan, source) + text);
    return exported;
  }

 private:
  // Flags of what is not planned would have no effect.
  Status check_use() const {
    if (message_bytes_ == 0) {
      JIGE_DO(flags_->refuse({"--latency-us"},
                             "is about small all-reduces; give --message too, or leave it out"));
    }
    if (nccl_.empty()) {
      JIGE_DO(flags_->refuse(
          {"--nccl-version"},
          "is of the NCCL that reads --export-nccl FILE; give that too, or leave it out"));
    }
    if (!nodes_.nodes.empty()) return {};
    return flags_->refuse({"--rails", "--network-gb-per-s"},
                          "is about a ring over machines; give --nodes too, or leave it out");
  }

  Status run_over_nodes() {
    JIGE_DO(flags_->refuse({"--no-collective"}, kOfAllReduces));
    if (rings_max_ > 1 || collective_ != "all-reduce" || message_bytes_ > 0) {
      return fail(
          Code::kInvalidArgument,
          "--rings, --collective and --message go with one machine or network, not with --nodes");
    }
    if (!svg_.empty() || !nccl_.empty() || !msccl_.empty() || !source_.file.empty() ||
        !source_.reference.empty() || !links_.store_file.empty()) {
      return fail(Code::kInvalidArgument,
                  "--nodes names all machines and goes with neither --topology, --reference, "
                  "--store, --svg, --export-nccl nor --export-msccl");
    }
    JIGE_TRY(const MeterKind* const kind, links_.meters.chosen(source_));
    if (!links_.meters.simulates(*kind)) {
      return fail(Code::kInvalidArgument, "--nodes goes with simulated rates, not with {}",
                  kind->flag());
    }
    JIGE_TRY(const NodeRingReport result, plan_over_nodes(nodes_, links_, options_));
    if (!out_.empty()) JIGE_DO(write_file_atomic(out_, dump_json(result.json, 1) + "\n"));
    output_.json ? print_json(result.json) : print_text(result.text);
    return {};
  }

  static std::string report(const plan::RingProblem& problem, const plan::RingPlan& plan,
                            std::string_view source) {
    using enum Table::Align;
    Table table(
        {{"ring"}, {"GB/s", kRight}, {"all-reduce", kRight}, {"planned is", kRight}, {"order"}});
    const plan::MeasuredRing& best = plan.best.front();
    const auto row = [&](std::string name, const plan::MeasuredRing& ring) {
      const ByCollective by(best.collective, ring.collective);
      table.row({std::move(name), rate_text(ring.rate), by.rate(), by.times(best.rate / ring.rate),
                 plan::ring_text(problem, ring.ring)});
    };
    row("planned", plan.best.front());
    row("constants, as NCCL", plan.constants);
    row("single links", plan.single_link);
    row("rank order", plan.rank_order);
    if (plan.best.size() > 1) table.rule();
    for (size_t i = 1; i < plan.best.size(); ++i) row(fmt::format("next {}", i), plan.best[i]);
    return fmt::format(
        "{}, {} devices; all rates {}\n{}\n{}\n{} sets measured ({} in place of their mirror "
        "images), {:.1f} s of measuring, the best one met after {:.1f} s\n",
        printable(problem.topology->name()), problem.node_count, source, table.render(),
        certainty(plan, best.collective > 0), plan.counts.measured, plan.counts.by_symmetry,
        plan.counts.cost_s, plan.found_after_s);
  }

  // Every transfer is measured alone, whatever that takes.
  void warn_of_small_budget(const LinkBench& bench, const plan::RingProblem& problem) const {
    int64_t unknown = 0;
    for (const topology::Transfer& transfer : problem.transfers()) {
      unknown += !bench.stored(std::span(&transfer, 1));
    }
    const double set_s = links_.request.seconds_per_set();
    const double most_s = static_cast<double>(unknown) * set_s;
    if (most_s <= options_.budget_s) return;
    log_warn(
        "--budget-seconds {:g} is small for {} transfers: measuring each alone takes up to {:.0f} "
        "s, {:g} s each; give more, or a smaller --set-seconds",
        options_.budget_s, unknown, most_s, set_s);
  }

  // What the search has shown of rings that it did not choose. It goes by sets of transfers, up to
  // the tolerance; all-reduces choose among the best by these.
  static std::string certainty(const plan::RingPlan& plan, bool collective) {
    const bool better = plan.gap() > kNoGain;
    const std::string more = fmt::format("{:.1f} % faster", 100 * plan.gap());
    const std::string tail = collective ? "; of the best by transfers, all-reduces chose" : "";
    if (plan.proven) {
      return (better ? fmt::format("by its transfers no other ring is more than {}", more)
                     : std::string("no other ring is faster")) +
             ": measured sets exclude them all" + tail;
    }
    return fmt::format("{}measured sets leave room for one {}{}{}",
                       plan.unpromised ? "by the description no ring is faster; " : "", more,
                       plan.budget_ended ? " (more --budget-seconds would tell)" : "", tail);
  }

  Status draw(const plan::RingProblem& problem, const plan::RingPlan& plan,
              std::string_view source) const {
    std::vector<int32_t> order;
    for (const topology::Transfer& t : plan::ring_transfers(problem, plan.best.front().ring)) {
      order.push_back(t.src);
    }
    return write_file_atomic(
        svg_,
        topology::topology_svg(*problem.topology,
                               {.subtitle = fmt::format("ring of {} GB/s, {}",
                                                        rate_text(plan.best.front().rate), source),
                                .rings = {order}}));
  }

  const Flags* flags_ = nullptr;
  TopologyFlags source_;
  LinkFlags links_;
  NodeRingRequest nodes_;
  plan::RingPlanOptions options_;
  std::optional<double> tolerance_;
  int64_t keep_ = 5, rings_max_ = 1, message_bytes_ = 0;
  double latency_us_ = 10;
  bool no_symmetry_ = false, no_collective_ = false;
  std::string collective_ = "all-reduce";
  std::string out_, svg_, nccl_, msccl_, nccl_version_ = "2.21";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_plan_rings_command() { return std::make_unique<PlanRingsCommand>(); }

}  // namespace jige::cli
