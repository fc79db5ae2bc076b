#include "cli/link_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/split.h"
#include "cli/flags.h"
#include "profile/agent_protocol.h"
#include "topology/transfer.h"

namespace jige::cli {
namespace {

constexpr int32_t kMeasuredSetsPerCheck = 25;  // between two looks whether rates have changed

}  // namespace

void LinkFlags::declare(Flags& flags) {
  flags.section("What to measure");
  meters.declare(flags);
  flags.number("--set-seconds S", request.set_seconds, {.min = 0, .max = 3600},
               "for the repeats of one set, which end earlier once the interval is below 3 %; "
               "without it 4, and less where a small budget is to do for many sets");
  flags.number("--timeout S", request.timeout_s, {.min = 0.1, .max = 3600},
               "for an agent or process to answer, and for one run of a set to end; between hosts "
               "a run has 30 at least");
  flags.section("Transfers and their rates");
  flags.text("--devices NAMES", devices, "these alone, separated by commas");
  flags.text("--store FILE", store_file,
             "keep what is measured here, and use what is there (JSON lines)");
  flags.toggle("--no-push", no_push, "without writes into another device");
  flags.toggle("--no-pull", no_pull, "without reads from another device");
  flags.toggle("--no-staged", no_staged, "without buffers in host memory");
  flags.toggle("--copy-engines", copy_engines, "copy engines as well, where they are described");
  flags.bytes(
      "--transfer-bytes SIZE", request.transfer_bytes,
      "of every transfer in a measurement; without it 32 MiB, between hosts 1 MiB; on real links "
      "what takes 0.05 to 0.12 s");
  flags.toggle("--no-kernels", no_kernels, "copy engines alone");
  meters.declare_simulated(flags);
  flags.integer("--seed N", request.seed, {.min = 0}, "of the noise and of every sample drawn");
}

Result<std::vector<int32_t>> LinkFlags::chosen_devices(const topology::Topology& topology) const {
  if (devices.empty()) return plan::ring_devices(topology);
  std::vector<int32_t> chosen;
  for (const std::string_view name : split_at(devices, ',')) {
    const int32_t found = topology.find(name);
    if (found < 0) {
      return fail(Code::kNotFound, "--devices: {} has no component \"{}\"", topology.name(), name);
    }
    if (std::ranges::find(chosen, found) != chosen.end()) {
      return fail(Code::kInvalidArgument, "--devices: \"{}\" is there twice", name);
    }
    chosen.push_back(found);
  }
  return chosen;
}

std::string rate_text(double gb_per_s) {
  if (gb_per_s >= 1) return fmt::format("{:.3f}", gb_per_s);
  return fmt::format("{:#.3g}", gb_per_s);
}

Result<plan::RingProblem> LinkBench::ring_problem(const LinkFlags& flags) const {
  JIGE_TRY(const std::vector<int32_t> devices, flags.chosen_devices(topology()));
  if (devices.empty()) {
    return fail(Code::kInvalidArgument,
                "{} has no GPU and no host to move data between; --shm 4 takes processes of this "
                "machine, --hosts other machines, --reference one that Jige knows, --topology a "
                "description",
                topology().name());
  }
  return plan::ring_problem(
      topology(), devices,
      {!flags.no_push, !flags.no_pull, !flags.no_staged, flags.copy_engines || opened_.copy_engines,
       !flags.no_kernels && opened_.kernels});
}

std::optional<profile::Measurement> LinkBench::stored(
    std::span<const topology::Transfer> set) const {
  if (!store_) return std::nullopt;
  const profile::MeasurementStore::Key key = profile::set_names(topology(), set);
  const auto found = store_->all().find(key);
  if (found == store_->all().end()) return std::nullopt;
  profile::Measurement kept = found->second;
  for (size_t i = 0; i < set.size(); ++i) {
    const auto place = std::ranges::find(key, topology::transfer_text(topology(), set[i]));
    kept.gb_per_s[i] = found->second.gb_per_s[static_cast<size_t>(place - key.begin())];
  }
  return kept;
}

Result<std::unique_ptr<LinkBench>> LinkBench::over(OpenedMeter opened, bool measures,
                                                   const std::string& store_file) {
  std::unique_ptr<LinkBench> bench(new LinkBench(std::move(opened), measures));
  profile::LinkMeter& meter = *bench->opened_.meter;
  if (!store_file.empty()) {
    JIGE_TRY(profile::MeasurementStore store,
             profile::MeasurementStore::open(store_file, bench->topology(), meter.source()));
    bench->store_.emplace(std::move(store));
  }
  profile::ProfilerOptions options;
  if (measures) {
    options.check_every = kMeasuredSetsPerCheck;
    options.check_stored = true;
  }
  bench->profiler_.emplace(bench->topology(), meter, bench->store_ ? &*bench->store_ : nullptr,
                           options);
  return bench;
}

Result<std::unique_ptr<LinkBench>> LinkBench::simulate(topology::Topology topology,
                                                       const LinkFlags& flags) {
  return over(flags.meters.simulated().of(std::move(topology), flags.request), false,
              flags.store_file);
}

Result<std::unique_ptr<LinkBench>> LinkBench::open(const TopologyFlags& source,
                                                   const LinkFlags& flags) {
  JIGE_TRY(const MeterKind* const kind, flags.meters.chosen(source));
  const int64_t bytes = flags.request.transfer_bytes;
  if (!flags.meters.simulates(*kind) && bytes > profile::kTransferBytesMax) {
    return fail(Code::kInvalidArgument, "--transfer-bytes: {} are out of range; {} at most",
                format_bytes(bytes), format_bytes(profile::kTransferBytesMax));
  }
  JIGE_TRY(OpenedMeter opened, kind->open(source, flags.request));
  return over(std::move(opened), !flags.meters.simulates(*kind), flags.store_file);
}

}  // namespace jige::cli
