#include "cli/ring_mix_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/link_bench.h"
#include "cli/table.h"

namespace jige::cli {

std::string ByCollective::rate() const { return rated > 0 ? rate_text(rated) : "-"; }

std::string ByCollective::times(double by_transfers) const {
  if (chosen > 0 && rated <= 0) return "-";
  return fmt::format("{:.2f}x", chosen > 0 ? chosen / rated : by_transfers);
}

std::string ring_mix_report(const plan::RingProblem& problem, const plan::RingMixPlan& plan,
                            std::string_view source) {
  using enum Table::Align;
  Table table({{"rings together"},
               {"GB/s", kRight},
               {"all-reduce", kRight},
               {"chosen is", kRight},
               {"part", kRight},
               {"order"}});
  const plan::MeasuredMix& best = plan.best.front();
  for (const plan::MeasuredMix& mix : plan.best) {
    const ByCollective by(best.collective, mix.collective);
    bool first = true;
    for (const plan::WeightedRing& ring : mix.mix.rings) {
      const std::string name = &mix == &best ? fmt::format("chosen: {}", mix.name) : mix.name;
      table.row({first ? name : "", first ? rate_text(mix.rate) : "",
                 first && by.chosen > 0 ? by.rate() : "",
                 first ? by.times(best.rate / mix.rate) : "",
                 fmt::format("{:.0f} %", 100 * ring.weight), plan::ring_text(problem, ring.ring)});
      first = false;
    }
  }
  std::string room = plan.unpromised ? "none of so many rings is promised more"
                                     : "the search ended before all that is promised was measured";
  if (plan.promised == 0) {
    room += "; how much more any number of rings could carry is not known";
  } else {
    room += fmt::format("; no number of rings is promised {:.1f} % more",
                        std::max(0.1, 100 * (plan.promised / best.rate - 1)));
  }
  return fmt::format("\n{}\nall rates {}; {}\n", table.render(), source, room);
}

std::string rounds_report(const plan::RingProblem& problem, const plan::RoundPlan& plan,
                          std::string_view source) {
  using enum Table::Align;
  Table table({{"all-to-all"},
               {"GB/s a device", kRight},
               {"run", kRight},
               {"chosen is", kRight},
               {"slowest", kRight},
               {"rounds: who the devices send to"}});
  const plan::MeasuredRounds& best = plan.best.front();
  for (const plan::MeasuredRounds& schedule : plan.best) {
    std::string rounds;
    for (const plan::Round& round : schedule.rounds) {
      if (!rounds.empty()) rounds += " | ";
      rounds += fmt::format("{}", fmt::join(plan::round_targets(problem, round), " "));
    }
    const ByCollective by(best.collective, schedule.collective);
    table.row({&schedule == &best ? fmt::format("chosen: {}", schedule.name) : schedule.name,
               rate_text(schedule.gb_per_s()), by.rate(), by.times(schedule.seconds / best.seconds),
               rate_text(*std::ranges::min_element(schedule.rates)), std::move(rounds)});
  }
  return fmt::format("\n{}\nall rates {}; {}; none takes less than {:.0f} % of its time\n",
                     table.render(), source,
                     plan.unpromised ? "no other schedule of rounds is promised less time"
                                     : "the search ended before all that is promised was measured",
                     100 * plan.bound_s / best.seconds);
}

std::string trees_report(const plan::RingProblem& problem, const plan::TreePlan& plan,
                         double message_bytes, double ring_rate) {
  std::string text = fmt::format("\ndouble trees {} deep, steps of {:.3g} us assumed\n", plan.depth,
                                 plan.latency_s * 1e6);
  for (const plan::MeasuredTrees& trees : plan.best) {
    std::vector<std::string> names;
    for (const int32_t node : trees.trees.nodes) {
      const auto at = static_cast<size_t>(node);
      names.push_back(problem.topology->component(problem.components[at]).name);
    }
    text += fmt::format("  {:10}  {} GB/s  {}", trees.name, rate_text(trees.rate),
                        fmt::join(names, " "));
    if (trees.collective_s > 0) text += fmt::format("  {:.1f} us run", trees.collective_s * 1e6);
    text += "\n";
  }
  if (plan.measured_crossover_bytes) {
    text += fmt::format("{} bytes: {:.1f} us by trees, {:.1f} us by rings, run as all-reduces; ",
                        message_bytes, plan.best.front().collective_s * 1e6,
                        plan.ring_collective_s * 1e6);
    const int64_t end = *plan.measured_crossover_bytes;
    if (end == 0) return text + "rings were faster at every size\n";
    return text + fmt::format("trees were faster up to {} bytes{}\n", end,
                              end >= plan.tried_bytes_max ? ", the largest tried" : "");
  }
  const plan::TreePlan::Times times = plan.times(message_bytes, ring_rate);
  text += fmt::format("{} bytes: {:.1f} us by trees, {:.1f} us by rings, predicted; ",
                      message_bytes, times.trees_s * 1e6, times.ring_s * 1e6);
  const auto crossover = plan.crossover_bytes(ring_rate);
  if (!crossover) return text + "trees are faster at any size\n";
  return text + fmt::format("rings are faster from {:.0f} bytes on\n", *crossover);
}

std::string nccl_report(const plan::NcclExport& out, std::string_view path) {
  std::string text = fmt::format("\nstock NCCL by {}: {:.3f} GB/s", path, out.rate);
  if (out.channels.size() > 1) {
    text += fmt::format(", channels of the rings: {}", fmt::join(out.channels, ", "));
  }
  if (out.lost.empty()) return text + ", nothing is lost\n";
  return text + fmt::format(" of {:.3f}; what it runs another way:\n  {}\n", out.planned_rate,
                            fmt::join(out.lost, "\n  "));
}

std::string msccl_report(const plan::MscclExport& out, std::string_view path) {
  std::string text = fmt::format("\nMSCCL by {}: {:.3f} GB/s, channels of the rings: {}", path,
                                 out.rate, fmt::join(out.channels, ", "));
  if (out.lost.empty()) return text + "; nothing is lost\n";
  return text + fmt::format("; what the file cannot say:\n  {}\n", fmt::join(out.lost, "\n  "));
}

}  // namespace jige::cli
