#include "cli/train_rank_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/flags.h"
#include "cli/rank_processes.h"
#include "cli/stop_notice.h"

namespace jige::cli {
namespace {

// For ranks to end by themselves once one has failed; rank 0 learns of that behind the passes that
// it computes, and then says which checkpoint is whole.
constexpr double kFarewellSeconds = 2;
constexpr double kFarewellSecondsRank0 = 60;

// What is told of a job: rank 0 knows which checkpoint is whole.
Status job_error(const std::vector<RankEnd>& ends) {
  return ends[0].told ? Status(tl::unexpected<Error>(*ends[0].error)) : first_cause(ends);
}

}  // namespace

void TrainRankFlags::declare(Flags& flags) {
  flags.section("Ranks (processes with the whole model each, that share every step)");
  flags.integer("--ranks N", group.ranks, {.min = 0, .max = 64},
                "start so many on this machine; 0 and 1: this process alone. With --device cuda "
                "they take its GPUs in turns, with cuda:N all take GPU N");
  flags.integer("--rank N", group.rank, {.min = -1, .max = comm::kWorldMax},
                "of this process, instead of --ranks; -1: what srun or mpirun says");
  flags.integer("--world N", group.world, {.min = 0, .max = comm::kWorldMax},
                "ranks altogether; 0: what srun or mpirun says");
  flags.text("--rendezvous HOST:PORT", group.rendezvous, "where rank 0 listens");
  flags.choice("--gradient-sum NAME", sum, {"relay", "rings"},
               "relay: the bits of one rank; rings: an all-reduce, whose last bits depend on the "
               "number of ranks, and which moves less where ranks have many micro-batches each");
  flags.toggle("--shard-optimizer", shard_optimizer,
               "each rank keeps moments and masters of its part of the parameters only (ZeRO stage "
               "1): the same bits in less memory");
  flags.toggle("--split-context", split_context,
               "each rank has a part of every sequence instead of whole micro-batches: for texts "
               "whose activations are too much for one, with the bits of one process");
  flags.toggle("--no-overlap", no_overlap,
               "move gradients behind the passes, to see what it costs");
  flags.choice("--transport NAME", group.transport, {"auto", "shm", "tcp"},
               "between ranks; auto: shared memory on one machine, else TCP");
  flags.text("--bind ADDRESS", group.bind_host, "of this rank's end of TCP connections");
  flags.text("--congestion NAME", group.congestion, "congestion control of TCP, such as bbr");
  flags.texts("--ring ORDER...", group.rings,
              "a ring as 0,2,1,3, or a plan of `jige plan rings -o PLAN.json`; rank order if none");
  flags.number("--rank-timeout S", group.timeout_s, {.min = 0.1, .max = 1e6},
               "of silence before a rank is given up");
}

train::RankOptions TrainRankFlags::options(const comm::Place& place, int local) const {
  return {.rank = place.rank,
          .size = place.world,
          .local = local,
          .sum = sum == "rings" ? train::GradientSum::kRings : train::GradientSum::kRelay,
          .overlap = !no_overlap,
          .split_context = split_context,
          .shard_optimizer = shard_optimizer};
}

const char* TrainRankFlags::given_between_ranks() const {
  const CollectiveFlags comm_defaults;
  if (shard_optimizer) return "--shard-optimizer";
  if (split_context) return "--split-context";
  if (sum != "relay") return "--gradient-sum";
  if (no_overlap) return "--no-overlap";
  if (group.transport != "auto") return "--transport";
  if (!group.bind_host.empty()) return "--bind";
  if (!group.congestion.empty()) return "--congestion";
  if (group.timeout_s != comm_defaults.timeout_s) return "--rank-timeout";
  return group.rings.empty() ? nullptr : "--ring";
}

Result<std::optional<train::RankOptions>> TrainRankFlags::planned() const {
  if (group.ranks > 0 && placed()) {
    return fail(Code::kInvalidArgument,
                "--ranks starts ranks by itself and goes with neither --rank, --world nor "
                "--rendezvous");
  }
  if (group.ranks > 1) {
    const auto size = static_cast<int>(group.ranks);
    return std::optional(options({.rank = 0, .world = size}, size));
  }
  if (!placed()) {
    if (const char* const flag = given_between_ranks(); flag != nullptr && group.ranks == 0) {
      return fail(Code::kInvalidArgument,
                  "{} is about several ranks, and this process is alone: give --ranks, or leave it "
                  "out",
                  flag);
    }
    return std::optional<train::RankOptions>();
  }
  JIGE_TRY(const comm::Place place, group.place());
  return std::optional(options(place, 1));
}

Status TrainRankFlags::run_joined(const comm::Place& place, const comm::Address& rendezvous,
                                  comm::Listener* listener, const Body& body) const {
  JIGE_TRY(const comm::RingPlan plan, group.plan(place.world));
  JIGE_TRY(auto transport, comm::join_group(group.join_options(place, rendezvous), plan, listener));
  std::vector<int> here;  // ranks on this machine
  for (int r = 0; r < place.world; ++r) {
    if (transport->host(r) == transport->host(place.rank)) here.push_back(r);
  }
  JIGE_TRY(comm::Communicator ranks,
           comm::Communicator::over(std::move(transport), plan, {.timeout_s = group.timeout_s}));
  train::RankOptions made = options(place, static_cast<int>(here.size()));
  made.host = here.front();
  made.local_rank = static_cast<int>(std::ranges::find(here, place.rank) - here.begin());
  made.group = comm::AsyncGroup::over(std::move(ranks));
  // Launchers pass a signal on to all ranks, as the starter of ranks here does.
  const bool by_hand = group.rank >= 0 && group.world > 0;
  const StopNotice notice(made.group,
                          by_hand ? StopNotice::Speaker::kEach : StopNotice::Speaker::kFirstThere);
  return body(std::move(made));
}

Status TrainRankFlags::run_here(const Body& body) const {
  const int size = static_cast<int>(group.ranks);
  JIGE_TRY([[maybe_unused]] const comm::RingPlan plan, group.plan(size));
  JIGE_TRY(comm::Listener listener, comm::Listener::open({"127.0.0.1", 0}));
  const auto run_rank = [&](int rank, std::atomic<bool>& writing) {
    const comm::Place place = {.rank = rank, .world = size, .source = "--ranks"};
    const Body told = [&](std::optional<train::RankOptions> ranks) {
      ranks->writing = &writing;
      return body(ranks);
    };
    return run_joined(place, listener.address(), rank == 0 ? &listener : nullptr, told);
  };
  JIGE_TRY(const auto ends, run_rank_processes({.count = size,
                                                .farewell_s_rank_0 = kFarewellSecondsRank0,
                                                .farewell_s = kFarewellSeconds},
                                               run_rank));
  return job_error(ends);
}

Status TrainRankFlags::run(const Body& body) const {
  JIGE_TRY(const std::optional<train::RankOptions> asked, planned());
  if (!asked) return body(std::nullopt);
  if (group.ranks > 1) return run_here(body);
  if (asked->size == 1) return body(std::nullopt);
  JIGE_TRY(const comm::Place place, group.place());
  JIGE_TRY(const comm::Address rendezvous, comm::parse_address(group.rendezvous));
  return run_joined(place, rendezvous, nullptr, body);
}

void share_out_gpus(int gpu_count, DeviceFlags& device, train::RankOptions& ranks) {
  const int taken = device.device == "cuda" ? std::max(gpu_count, 1) : 1;
  if (taken > 1) device.device = fmt::format("cuda:{}", ranks.local_rank % taken);
  ranks.on_device = (ranks.local + taken - 1) / taken;
}

}  // namespace jige::cli
