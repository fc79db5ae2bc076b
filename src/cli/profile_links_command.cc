// jige profile links: the rates of transfers, alone and together.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/link_bench.h"
#include "cli/output.h"
#include "cli/table.h"
#include "profile/set_timer.h"

namespace jige::cli {
namespace {

constexpr size_t kSubsetMembersMax = 12;

class ProfileLinksCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Runs sets of transfers at once and tells the rate of each member and of the whole. With "
        "--hosts they are measured over TCP, by the agents on these hosts; with --shm between "
        "processes of this machine, through shared memory; with --mpi between ranks of an MPI "
        "program; otherwise simulated from the "
        "description: links shared fairly, penalties as it states them. With --store, "
        "what was measured is kept, and an interrupted run goes on where it ended.");
    flags.text(
        "[WHAT]", what_,
        "solo: every transfer alone; pairs: every two that one ring can hold; set: the "
        "transfers of --set together; all-subsets: every part of --set; all-reduce: one over the "
        "ring of --devices, in their order, between --hosts or processes (--shm)");
    flags.text("--set TRANSFERS", set_, "such as gpu0>gpu1:push,gpu1>gpu2:via-numa0");
    source_.declare(flags, "--topology");
    links_.declare(flags);
    output_.declare(flags, "one JSON line a set");
    flags.example(
        "jige profile links pairs --hosts a=10.0.0.1,b=10.0.0.2,c=10.0.0.3 --store l.jsonl");
    flags.example("jige profile links pairs --shm cpu0,cpu8,cpu16,cpu24");
    flags.example("jige profile links pairs --mpi a=host:node1,b=host:node2,c=host:node3");
    flags.example("jige profile links solo --reference pcie-4gpu-2numa");
    flags.example(
        "jige profile links set --topology box.json --set 'gpu0>gpu1:push,gpu1>gpu0:pull'");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(const std::unique_ptr<LinkBench> bench, LinkBench::open(source_, links_));
    const topology::Topology& topology = bench->topology();
    if (what_ == "all-reduce") return run_all_reduce(*bench);
    JIGE_TRY(const std::vector<std::vector<topology::Transfer>> sets, chosen_sets(*bench));
    profile::Profiler& profiler = bench->profiler();
    Table table(
        {{"set"}, {"GB/s", Table::Align::kRight}, {"+-", Table::Align::kRight}, {"members"}});
    for (const auto& set : sets) {
      JIGE_DO(profile::check_cancelled(&interrupt_flag()));
      const profile::Measurement* kept = sets.size() > 1 ? bench->stored(set) : nullptr;
      if (kept) {
        report(*bench, set, {.rate = kept->rate}, table);
        continue;
      }
      JIGE_TRY(const profile::Measurement m, profiler.measure(set));
      report(*bench, set, m, table);
    }
    if (!output_.json) {
      print_text(fmt::format("{}: {} sets, {} measured now, rates {}\n{}", topology.name(),
                             sets.size(), profiler.counts().measured, profiler.source(),
                             table.render()));
    }
    return {};
  }

 private:
  Status run_all_reduce(LinkBench& bench) {
    if (!bench.collectives()) {
      return fail(
          Code::kInvalidArgument,
          "all-reduce: --hosts or --shm is missing: only they run it, nothing is simulated");
    }
    JIGE_TRY(const std::vector<int32_t> order, links_.chosen_devices(bench.topology()));
    JIGE_TRY(const profile::CollectiveTimes times,
             bench.collectives()->all_reduce(order, links_.request.transfer_bytes));
    std::vector<std::string> names;
    for (const int32_t c : order) names.push_back(bench.topology().component(c).name);
    if (output_.json) {
      print_json({{"order", names},
                  {"bytes", times.bytes},
                  {"seconds", times.seconds},
                  {"edge_gb_per_s", times.edge_gb_per_s}});
      return {};
    }
    print_text(fmt::format("all-reduce of {} over {}: {:.4f} s, {} GB/s on every edge\n",
                           format_bytes(static_cast<uint64_t>(times.bytes)), fmt::join(names, " "),
                           fmt::join(times.seconds, " "), rate_text(times.edge_gb_per_s)));
    return {};
  }

  Result<std::vector<std::vector<topology::Transfer>>> chosen_sets(const LinkBench& bench) const {
    const topology::Topology& topology = bench.topology();
    std::vector<std::vector<topology::Transfer>> sets;
    if (what_ == "solo" || what_ == "pairs") {
      JIGE_TRY(const plan::RingProblem problem, bench.ring_problem(links_));
      const std::vector<topology::Transfer> all = problem.transfers();
      for (size_t a = 0; a < all.size(); ++a) {
        if (what_ == "solo") sets.push_back({all[a]});
        for (size_t b = a + 1; what_ == "pairs" && b < all.size(); ++b) {
          if (all[a].src != all[b].src && all[a].dst != all[b].dst)
            sets.push_back({all[a], all[b]});
        }
      }
      return sets;
    }
    if (what_ != "set" && what_ != "all-subsets") {
      return fail(Code::kInvalidArgument,
                  "WHAT: \"{}\" is not one of solo, pairs, set, all-subsets, all-reduce", what_);
    }
    JIGE_TRY(const std::vector<topology::Transfer> set, topology::parse_transfers(topology, set_));
    if (set.empty()) return fail(Code::kInvalidArgument, "--set is missing: which transfers?");
    for (const topology::Transfer& transfer : set) {
      if (std::ranges::count(set, transfer) > 1) {
        return fail(Code::kInvalidArgument, "--set: {} is there twice",
                    topology::transfer_text(topology, transfer));
      }
    }
    if (what_ == "set") return std::vector<std::vector<topology::Transfer>>{set};
    if (set.size() > kSubsetMembersMax) {
      return fail(Code::kInvalidArgument,
                  "--set: all subsets of {} transfers are too many, at most {}", set.size(),
                  kSubsetMembersMax);
    }
    for (size_t mask = 1; mask < size_t{1} << set.size(); ++mask) {
      sets.emplace_back();
      for (size_t i = 0; i < set.size(); ++i) {
        if (mask >> i & 1) sets.back().push_back(set[i]);
      }
    }
    return sets;
  }

  void report(LinkBench& bench, const std::vector<topology::Transfer>& set,
              const profile::Measurement& m, Table& table) const {
    std::vector<std::string> names;
    for (const auto& transfer : set) {
      names.push_back(topology::transfer_text(bench.topology(), transfer));
    }
    if (output_.json) {
      print_json({{"set", names},
                  {"rate", m.rate},
                  {"gb_per_s", m.gb_per_s},
                  {"deviation", m.deviation},
                  {"half_width", m.half_width},
                  {"repeats", m.repeats},
                  {"rates", bench.profiler().source()}});
      return;
    }
    std::vector<std::string> rates;
    for (const double rate : m.gb_per_s) rates.push_back(rate_text(rate));
    table.row({fmt::format("{}", fmt::join(names, ", ")), rate_text(m.rate),
               m.repeats > 0 ? fmt::format("{:.1f} %", 100 * m.half_width) : "kept",
               fmt::format("{}", fmt::join(rates, " "))});
  }

  std::string what_ = "solo", set_;
  TopologyFlags source_;
  LinkFlags links_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_profile_links_command() {
  return std::make_unique<ProfileLinksCommand>();
}

}  // namespace jige::cli
