// jige profile links: the rates of transfers, alone and together.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/printable.h"
#include "base/progress.h"
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
    flags_ = &flags;
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
    output_.declare(
        flags,
        "one JSON line a set; those of an earlier \"epoch\" than the last are outdated, "
        "since rates changed on the way");
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
    if (what_ != "set" && what_ != "all-subsets") {
      JIGE_DO(flags_->refuse({"--set"}, "is for `set` and `all-subsets`; leave it out"));
    }
    JIGE_TRY(const std::unique_ptr<LinkBench> bench, LinkBench::open(source_, links_));
    if (what_ == "all-reduce") return run_all_reduce(*bench);
    JIGE_TRY(const std::vector<Set> sets, chosen_sets(*bench));
    std::vector<Row> rows;
    const Status measured = measure(*bench, sets, rows);
    // Where it ends early, what was measured until then is worth seeing all the same.
    if (!output_.json && (measured || !rows.empty())) {
      print_text(report(*bench, rows, sets.size()));
    }
    return measured;
  }

 private:
  using Set = std::vector<topology::Transfer>;
  struct Row {
    Set set;
    profile::Measurement measurement;
    bool kept = false;  // from the store
    int32_t epoch = 0;  // of the profiler's: those before the last one hold no more
  };

  Status measure(LinkBench& bench, const std::vector<Set>& sets, std::vector<Row>& rows) const {
    profile::Profiler& profiler = bench.profiler();
    const bool shows = bench.measures() && !output_.quiet && !output_.json;
    Progress progress("sets", std::ssize(sets), !shows);
    for (const Set& set : sets) {
      JIGE_DO(profile::check_cancelled(&interrupt_flag()));
      progress.update(std::ssize(rows), fmt::format("{}", fmt::join(names_of(bench, set), ", ")));
      std::optional<profile::Measurement> kept;
      if (sets.size() > 1) kept = bench.stored(set);
      Row row{.set = set, .kept = kept.has_value()};
      if (kept) {
        row.measurement = std::move(*kept);
      } else {
        JIGE_TRY(row.measurement, profiler.measure(set));
      }
      row.epoch = profiler.epoch();
      if (output_.json) print_row(bench, row);
      rows.push_back(std::move(row));
    }
    return {};
  }

  Status run_all_reduce(LinkBench& bench) {
    if (!bench.collectives()) {
      return fail(
          Code::kInvalidArgument,
          "all-reduce: --hosts or --shm is missing: only they run it, nothing is simulated");
    }
    JIGE_TRY(const std::vector<int32_t> order, links_.chosen_devices(bench.topology()));
    if (order.size() < 2) {
      return fail(Code::kInvalidArgument, "all-reduce: {} has {} to run it over, it needs two",
                  bench.topology().name(), order.size());
    }
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
                           format_bytes(times.bytes), fmt::join(names, " "),
                           fmt::join(times.seconds, " "), rate_text(times.edge_gb_per_s)));
    return {};
  }

  Result<std::vector<Set>> chosen_sets(const LinkBench& bench) const {
    const topology::Topology& topology = bench.topology();
    std::vector<Set> sets;
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
    JIGE_TRY(const Set set, topology::parse_transfers(topology, set_));
    if (set.empty()) return fail(Code::kInvalidArgument, "--set is missing: which transfers?");
    for (const topology::Transfer& transfer : set) {
      if (std::ranges::count(set, transfer) > 1) {
        return fail(Code::kInvalidArgument, "--set: {} is there twice",
                    topology::transfer_text(topology, transfer));
      }
    }
    if (what_ == "set") return std::vector<Set>{set};
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

  static std::vector<std::string> names_of(const LinkBench& bench, const Set& set) {
    std::vector<std::string> names;
    for (const auto& transfer : set) {
      names.push_back(topology::transfer_text(bench.topology(), transfer));
    }
    return names;
  }

  static void print_row(LinkBench& bench, const Row& row) {
    const profile::Measurement& m = row.measurement;
    print_json({{"set", names_of(bench, row.set)},
                {"rate", m.rate},
                {"gb_per_s", m.gb_per_s},
                {"deviation", m.deviation},
                {"half_width", m.half_width},
                {"repeats", m.repeats},
                {"kept", row.kept},
                {"epoch", row.epoch},
                {"rates", bench.profiler().source()}});
  }

  static std::string report(LinkBench& bench, const std::vector<Row>& rows, size_t set_count) {
    using enum Table::Align;
    const profile::Profiler& profiler = bench.profiler();
    Table table({{"set"}, {"GB/s", kRight}, {"+-", kRight}, {"members"}});
    size_t outdated = 0, kept = 0;
    for (const Row& row : rows) {
      const profile::Measurement& m = row.measurement;
      std::vector<std::string> rates;
      for (const double rate : m.gb_per_s) rates.push_back(rate_text(rate));
      const bool old = row.epoch != profiler.epoch();
      outdated += old;
      kept += row.kept;
      const std::string interval = old        ? "outdated"
                                   : row.kept ? "kept"
                                              : fmt::format("{:.1f} %", 100 * m.half_width);
      table.row({fmt::format("{}", fmt::join(names_of(bench, row.set), ", ")), rate_text(m.rate),
                 interval, fmt::format("{}", fmt::join(rates, " "))});
    }
    std::string text = fmt::format(
        "{}: {} set{}, {} measured now{}, rates {}\n{}", printable(bench.topology().name()),
        rows.size() == set_count ? std::to_string(set_count)
                                 : fmt::format("{} of {}", rows.size(), set_count),
        set_count == 1 ? "" : "s", rows.size() - kept,
        kept > 0 ? fmt::format(", {} kept from before", kept) : "", profiler.source(),
        table.render());
    if (outdated > 0) {
      text += fmt::format("Rates changed on the way ({}); run this again for the {} outdated.\n",
                          profiler.last_change(), outdated);
    }
    return text;
  }

  const Flags* flags_ = nullptr;
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
