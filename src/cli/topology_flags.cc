#include "cli/topology_flags.h"

#include <fmt/format.h>

#include <sstream>

#include "cli/flags.h"
#include "cli/interrupt.h"
#include "profile/simulated_meter.h"
#include "topology/machine_topology.h"
#include "topology/reference_topologies.h"
#include "topology/slurm_topology.h"
#include "topology/topology_json.h"
#include "topology/xml_topology.h"

namespace jige::cli {
namespace {

constexpr int64_t kDeviceTransferBytes = int64_t{32} << 20;
constexpr int64_t kHostTransferBytes = int64_t{1} << 20;
constexpr int32_t kMeasuredSetsPerCheck = 25;  // between two looks whether rates have changed

std::unique_ptr<profile::LinkMeter> simulated_meter(const topology::Topology& topology,
                                                    const LinkFlags& flags) {
  const bool hosts = topology.of_kind(topology::ComponentKind::kDevice).empty();
  const int64_t usual_bytes = hosts ? kHostTransferBytes : kDeviceTransferBytes;
  const profile::SimulatedMeterOptions options{
      .bytes = static_cast<double>(flags.transfer_bytes > 0 ? flags.transfer_bytes : usual_bytes),
      .noise = flags.noise,
      .seed = static_cast<uint64_t>(flags.seed)};
  return std::make_unique<profile::SimulatedMeter>(topology, options);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> list;
  for (std::string word; words >> word;) list.push_back(std::move(word));
  return list;
}

// What a meter knows of its network, or what is given of it with the meter's facts.
Result<topology::Description> described(topology::Description known, const TopologyFlags& source) {
  if (!source.given()) return known;
  JIGE_TRY(const topology::Topology given, source.load());
  topology::Description description = given.description();
  description.environment.merge(known.environment);
  return description;
}

}  // namespace

void TopologyFlags::declare(Flags& flags, std::string_view file_flag) {
  flags.section("Machine or network");
  flags.text(
      fmt::format("{} FILE", file_flag), file,
      "a description as JSON, a topology of NCCL or hwloc (lstopo --of xml) as .xml, or Slurm's "
      "topology.conf; without one, this machine");
  flags.text("--reference NAME", reference,
             fmt::format("a machine or network that Jige knows: {}",
                         fmt::join(topology::reference_topology_names(), ", ")));
  flags.choice("--source NAME", source, topology::machine_sources(),
               "what this machine is read from; auto: sysfs, and NVML where there is a driver");
}

Result<topology::Topology> TopologyFlags::load() const {
  if (!file.empty() && !reference.empty()) {
    return fail(Code::kInvalidArgument, "give a file or --reference, not both");
  }
  if (given() && source != "auto") {
    return fail(Code::kInvalidArgument,
                "--source is of this machine; a file or --reference is not");
  }
  if (file.ends_with(".xml")) return topology::load_xml_topology(file);
  if (file.ends_with(".conf")) return topology::load_slurm_topology(file);
  if (!file.empty()) return topology::load_topology(file);
  if (!reference.empty()) return topology::reference_topology(reference);
  return topology::machine_topology({.source = source});
}

void LinkFlags::declare(Flags& flags) {
  flags.section("What to measure");
  flags.text("--hosts LIST", hosts,
             "hosts on which `jige profile agent` runs: NAME=ADDRESS[:PORT], separated by commas, "
             "or a file with one a line; without --hosts, --shm, --mpi and --gpus, rates are "
             "simulated");
  flags.text("--shm PLACES", shm,
             "processes of this machine, through shared memory: how many, or [NAME=]cpuN and "
             "[NAME=]numaN separated by commas");
  flags.text("--mpi PLACES", mpi,
             "ranks of an MPI program: as --shm, or [NAME=]host:HOST separated by commas");
  flags.text("--mpirun WORDS", mpirun, "how MPI programs are started, with options if need be");
  flags.toggle("--gpus", gpus,
               "the GPUs of this machine, by copy engines and kernels (tried without a real GPU "
               "so far)");
  flags.text("--token TEXT", token, "what the agents were started with");
  flags.text("--congestion NAME", congestion,
             "TCP's congestion control; auto: bbr where every host has it; system: not set");
  flags.number("--set-seconds S", set_seconds, {.min = 0, .max = 3600},
               "for the repeats of one set, which end earlier once the interval is below 3 %");
  flags.number("--timeout S", timeout_s, {.min = 0.1, .max = 3600},
               "for an agent or process to answer");
  flags.section("Transfers and their rates");
  flags.text("--devices NAMES", devices, "these alone, separated by commas");
  flags.text("--store FILE", store_file,
             "keep what is measured here, and use what is there (JSON lines)");
  flags.toggle("--no-push", no_push, "without writes into another device");
  flags.toggle("--no-pull", no_pull, "without reads from another device");
  flags.toggle("--no-staged", no_staged, "without buffers in host memory");
  flags.toggle("--copy-engines", copy_engines, "copy engines as well, where they are described");
  flags.bytes(
      "--transfer-bytes SIZE", transfer_bytes,
      "of every transfer in a measurement; without it 32 MiB, between hosts 1 MiB; on real links "
      "what takes 0.05 to 0.12 s");
  flags.toggle("--no-kernels", no_kernels, "copy engines alone");
  flags.integer("--kernel-blocks N", kernel_blocks, {.min = 1, .max = 1024},
                "of a kernel that copies: how many multiprocessors it takes (--gpus)");
  flags.number("--noise X", noise, {.min = 0, .max = 0.5},
               "relative deviation of simulated times from run to run");
  flags.integer("--seed N", seed, {.min = 0}, "of the noise and of every sample drawn");
}

Result<std::vector<int32_t>> LinkFlags::chosen_devices(const topology::Topology& topology) const {
  if (devices.empty()) return plan::ring_devices(topology);
  std::vector<int32_t> chosen;
  std::string_view rest = devices;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view name = rest.substr(0, comma);
    const int32_t found = topology.find(name);
    if (found < 0) {
      return fail(Code::kNotFound, "--devices: {} has no component \"{}\"", topology.name(), name);
    }
    chosen.push_back(found);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return chosen;
}

std::string rate_text(double gb_per_s) {
  if (gb_per_s >= 1) return fmt::format("{:.3f}", gb_per_s);
  return fmt::format("{:#.3g}", gb_per_s);
}

Status LinkBench::connect(const TopologyFlags& source, const LinkFlags& flags) {
  const bool listed = flags.hosts.find('=') != std::string::npos;
  JIGE_TRY(std::vector<profile::Host> hosts, listed ? profile::parse_hosts(flags.hosts, "--hosts")
                                                    : profile::load_hosts(flags.hosts));
  profile::TcpMeterOptions options{.agent = {.token = flags.token, .timeout_s = flags.timeout_s},
                                   .congestion = flags.congestion,
                                   .bytes = flags.transfer_bytes,
                                   .cancelled = &interrupt_flag()};
  options.repeats.seconds_max = flags.set_seconds;
  JIGE_TRY(std::unique_ptr<profile::TcpMeter> meter,
           profile::TcpMeter::connect(std::move(hosts), options));
  collectives_ = meter.get();
  JIGE_TRY(topology::Description network, described(meter->description(), source));
  return take(std::move(meter), std::move(network), "--hosts");
}

Status LinkBench::start_processes(const TopologyFlags& source, const LinkFlags& flags) {
  JIGE_TRY(std::vector<profile::LocalPlace> places,
           profile::parse_places(flags.shm, profile::usable_processors(), "--shm"));
  profile::ShmMeterOptions options{.bytes = flags.transfer_bytes,
                                   .run_timeout_s = flags.timeout_s,
                                   .cancelled = &interrupt_flag()};
  options.repeats.seconds_max = flags.set_seconds;
  JIGE_TRY(std::unique_ptr<profile::ShmMeter> meter,
           profile::ShmMeter::start(std::move(places), options));
  collectives_ = meter.get();
  JIGE_TRY(topology::Description machine, described(meter->description(), source));
  return take(std::move(meter), std::move(machine), "--shm");
}

Status LinkBench::start_mpi(const TopologyFlags& source, const LinkFlags& flags) {
  JIGE_TRY(std::vector<profile::MpiPlace> places,
           profile::parse_mpi_places(flags.mpi, profile::usable_processors(), "--mpi"));
  profile::MpiMeterOptions options{.bytes = flags.transfer_bytes,
                                   .run_timeout_s = flags.timeout_s,
                                   .cancelled = &interrupt_flag()};
  options.repeats.seconds_max = flags.set_seconds;
  options.launch.launcher = words_of(flags.mpirun);
  JIGE_TRY(std::unique_ptr<profile::MpiMeter> meter,
           profile::MpiMeter::start(std::move(places), options));
  JIGE_TRY(topology::Description network, described(meter->description(), source));
  return take(std::move(meter), std::move(network), "--mpi");
}

Status LinkBench::start_gpus(const TopologyFlags& source, const LinkFlags& flags) {
  JIGE_TRY(const topology::Topology machine, source.load());
  profile::GpuMeterOptions options{.bytes = flags.transfer_bytes,
                                   .run_timeout_s = flags.timeout_s,
                                   .cancelled = &interrupt_flag()};
  options.repeats.seconds_max = flags.set_seconds;
  options.box.kernel_blocks = static_cast<int32_t>(flags.kernel_blocks);
  JIGE_TRY(std::unique_ptr<profile::GpuMeter> meter,
           profile::GpuMeter::start(machine.description(), options));
  topology::Description description = meter->description();
  return take(std::move(meter), std::move(description), "--gpus");
}

template <typename Meter>
Status LinkBench::take(std::unique_ptr<Meter> meter, topology::Description description,
                       std::string_view where) {
  JIGE_TRY(topology_, topology::Topology::create(std::move(description), where));
  JIGE_DO(meter->use(*topology_));
  meter_ = std::move(meter);
  measures_ = true;
  return {};
}

Status LinkBench::open_profiler(const LinkFlags& flags) {
  profile::MeasurementStore* store = nullptr;
  if (!flags.store_file.empty()) {
    JIGE_TRY(profile::MeasurementStore opened,
             profile::MeasurementStore::open(flags.store_file, *topology_, meter_->source()));
    store_.emplace(std::move(opened));
    store = &*store_;
  }
  profile::ProfilerOptions options;
  if (measures()) {
    options.check_every = kMeasuredSetsPerCheck;
    options.check_stored = true;
  }
  profiler_.emplace(*topology_, *meter_, store, options);
  return {};
}

const profile::Measurement* LinkBench::stored(std::span<const topology::Transfer> set) const {
  if (!store_) return nullptr;
  const auto found = store_->all().find(profile::set_names(*topology_, set));
  return found == store_->all().end() ? nullptr : &found->second;
}

Result<std::unique_ptr<LinkBench>> LinkBench::simulate(topology::Topology topology,
                                                       const LinkFlags& flags) {
  std::unique_ptr<LinkBench> bench(new LinkBench);
  bench->topology_ = std::move(topology);
  bench->meter_ = simulated_meter(*bench->topology_, flags);
  JIGE_DO(bench->open_profiler(flags));
  return bench;
}

Result<std::unique_ptr<LinkBench>> LinkBench::open(const TopologyFlags& source,
                                                   const LinkFlags& flags) {
  const bool hosts = !flags.hosts.empty(), processes = !flags.shm.empty(), mpi = !flags.mpi.empty();
  if (hosts + processes + mpi + flags.gpus > 1) {
    return fail(Code::kInvalidArgument, "give one of --hosts, --shm, --mpi and --gpus");
  }
  if (!hosts && !processes && !mpi && !flags.gpus) {
    JIGE_TRY(topology::Topology topology, source.load());
    return simulate(std::move(topology), flags);
  }
  if (!flags.gpus && source.source != "auto") {
    return fail(Code::kInvalidArgument, "--source is of this machine's parts; --{} shows others",
                hosts ? "hosts"
                : mpi ? "mpi"
                      : "shm");
  }
  std::unique_ptr<LinkBench> bench(new LinkBench);
  JIGE_DO(flags.gpus  ? bench->start_gpus(source, flags)
          : mpi       ? bench->start_mpi(source, flags)
          : processes ? bench->start_processes(source, flags)
                      : bench->connect(source, flags));
  JIGE_DO(bench->open_profiler(flags));
  return bench;
}

}  // namespace jige::cli
