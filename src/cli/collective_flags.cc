#include "cli/collective_flags.h"

#include <algorithm>
#include <array>
#include <thread>

#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/rank_pages.h"
#include "cli/rank_processes.h"
#include "comm/ring_plan_file.h"
#include "comm/shared_transport.h"
#include "comm/tuning.h"

namespace jige::cli {
namespace {

using Body = std::function<Status(comm::Communicator&)>;

// For ranks to end by themselves once a signal came.
constexpr double kSignalSeconds = 2;

// What a flag gave, or its error said of the flag.
template <typename T>
Result<T> of_flag(const char* flag, Result<T> result) {
  if (result) return result;
  return with_context(std::move(result.error()), "{}", flag);
}

bool is_plan_file(const std::string& ring) { return ring.ends_with(".json"); }

}  // namespace

void CollectiveFlags::declare(Flags& flags) {
  flags.section("Ranks");
  flags.integer("--ranks N", ranks, {.min = 0, .max = 64},
                "start so many on this machine; 0: this process is one of --world");
  flags.integer("--rank N", rank, {.min = -1, .max = comm::kWorldMax},
                "of this process; -1: what srun or mpirun says");
  flags.integer("--world N", world, {.min = 0, .max = comm::kWorldMax},
                "ranks altogether; 0: what srun or mpirun says");
  flags.text("--rendezvous HOST:PORT", rendezvous, "where rank 0 listens");
  flags.section("Links");
  flags.choice("--transport NAME", transport, {"auto", "threads", "shm", "tcp"},
               "auto: shared memory on one machine, else TCP; threads: of one process");
  flags.text("--bind ADDRESS", bind_host, "of this rank's end of TCP connections");
  flags.text("--congestion NAME", congestion, "congestion control of TCP, such as bbr");
  flags.texts("--ring ORDER...", rings,
              "a ring as 0,2,1,3, or 0,2,1,3@WEIGHT, or a plan of `jige plan rings -o PLAN.json`; "
              "several share the data; rank order if none");
  flags.bytes("--piece SIZE", piece_bytes, "moves along a ring as one step");
  flags.toggle("--trees", trees,
               "double binary trees over rank order for small all-reduces, broadcasts and "
               "reductions; a plan of `jige plan rings --message SIZE` brings its own");
  flags.integer("--tree-max BYTES", tree_bytes_max, {.min = -1, .max = int64_t{1} << 40},
                "up to so many go along trees instead of along rings, and add in their order; -1: "
                "as the plan says, else measured at the start");
  flags.integer("--direct-max BYTES", direct_bytes_max, {.min = -1, .max = int64_t{1} << 40},
                "up to so many go directly instead of along rings or trees; -1: measured at the "
                "start");
  flags.text("--tuning FILE", tuning, "keep what was measured there, and read it again");
  flags.number("--timeout S", timeout_s, {.min = 0.1, .max = 1e6},
               "without any movement before ranks give up");
}

Result<comm::RingPlan> CollectiveFlags::plan(int size) const {
  comm::RingPlan plan;
  if (const auto file = std::ranges::find_if(rings, is_plan_file); file != rings.end()) {
    if (rings.size() > 1) {
      return fail(Code::kInvalidArgument,
                  "--ring: {} names all rings: give it alone, or rings without it", *file);
    }
    JIGE_TRY(plan, of_flag("--ring", comm::load_ring_plan(*file, size)));
  } else {
    for (const std::string& text : rings) {
      JIGE_TRY(comm::Ring ring, of_flag("--ring", comm::parse_ring(text)));
      plan.rings.push_back(std::move(ring));
    }
  }
  if (Status fits = comm::check_piece_bytes(piece_bytes); !fits) {
    return with_context(std::move(fits.error()), "--piece");
  }
  plan.piece_bytes = piece_bytes;
  if (trees && !plan.trees && size > 1) {
    plan.trees = comm::TreePair::over(comm::RingPlan::in_rank_order(size).rings[0].order);
  }
  if (plan.trees && tree_bytes_max >= 0) plan.trees->bytes_max = tree_bytes_max;
  if (plan.rings.empty()) plan.rings = comm::RingPlan::in_rank_order(size).rings;
  if (Status fits = plan.check(size); !fits) {
    return with_context(std::move(fits.error()), "--ring");
  }
  return plan;
}

Result<comm::Place> CollectiveFlags::place() const {
  comm::Place place = {.rank = static_cast<int>(rank),
                       .world = static_cast<int>(world),
                       .source = "--rank and --world"};
  if (rank < 0 || world == 0) {
    JIGE_TRY(const auto found, comm::place_from_environment());
    if (!found) {
      return fail(Code::kInvalidArgument,
                  "which ranks? --ranks N starts N here; or start each with --rank, --world and "
                  "--rendezvous, or by srun or mpirun with --rendezvous");
    }
    place = *found;
  }
  JIGE_DO(comm::check_place(place));
  if (rendezvous.empty() && place.world > 1) {
    return fail(Code::kInvalidArgument,
                "--rendezvous HOST:PORT is missing: where rank 0 of {} listens", place.world);
  }
  return place;
}

comm::JoinOptions CollectiveFlags::join_options(const comm::Place& place,
                                                comm::Address address) const {
  return {.place = place,
          .rendezvous = std::move(address),
          .bind_host = bind_host,
          .transport = transport,
          .congestion = congestion,
          .timeout_s = std::max(timeout_s, 10.0),
          .cancelled = &interrupt_flag()};
}

Status CollectiveFlags::tune(comm::Communicator& group) const {
  const bool open_trees =
      group.plan().trees && group.plan().trees->bytes_max == comm::kTreesUnmeasured;
  if (group.size() == 1 || (direct_bytes_max >= 0 && !open_trees)) return {};
  // Rank 0 alone knows what the file says.
  const bool reads = !tuning.empty() && group.rank() == 0;
  std::optional<comm::Tuning> kept;
  if (reads) {
    JIGE_TRY(kept, of_flag("--tuning", comm::load_tuning(tuning, group)));
  }
  const comm::Tuning sent = kept.value_or(comm::Tuning{.direct_bytes_max = -1});
  std::array<int64_t, 2> sizes = {sent.direct_bytes_max, sent.tree_bytes_max};
  JIGE_DO(group.broadcast(sizes.data(), sizes.data(), 2, DType::kI64, 0));
  comm::Tuning found = {.direct_bytes_max = sizes[0], .tree_bytes_max = sizes[1]};
  if (found.direct_bytes_max < 0) {
    JIGE_TRY(found, comm::measure_tuning(group));
    if (reads) JIGE_DO(comm::store_tuning(tuning, group, found));
  }
  if (open_trees) group.set_tree_bytes_max(found.tree_bytes_max);
  group.set_direct_bytes_max(direct_bytes_max >= 0 ? direct_bytes_max : found.direct_bytes_max);
  return {};
}

Status CollectiveFlags::run_over(std::unique_ptr<comm::Transport> made, const comm::RingPlan& plan,
                                 const Body& body) const {
  comm::CommOptions options = {.timeout_s = timeout_s, .cancelled = &interrupt_flag()};
  if (direct_bytes_max >= 0) options.direct_bytes_max = direct_bytes_max;
  JIGE_TRY(comm::Communicator group, comm::Communicator::over(std::move(made), plan, options));
  JIGE_DO(tune(group));
  JIGE_DO(body(group));
  return group.barrier();
}

Status CollectiveFlags::run_threads(const Body& body) const {
  const int size = static_cast<int>(ranks);
  JIGE_TRY(const comm::RingPlan rings_of_all, plan(size));
  JIGE_TRY(auto transports, comm::make_thread_transports(size, rings_of_all));
  std::vector<Status> results(transports.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < transports.size(); ++r) {
    threads.emplace_back(
        [&, r] { results[r] = run_over(std::move(transports[r]), rings_of_all, body); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Error> errors;
  for (const Status& result : results) {
    if (!result) errors.push_back(result.error());
  }
  return first_cause(errors);
}

Status CollectiveFlags::run_processes(const Body& body) const {
  const int size = static_cast<int>(ranks);
  JIGE_TRY(const comm::RingPlan rings_of_all, plan(size));
  const std::string host = bind_host.empty() ? "127.0.0.1" : bind_host;
  JIGE_TRY(comm::Listener listener, of_flag("--bind", comm::Listener::open({host, 0})));
  const auto run_rank = [&](int r, std::atomic<bool>&) -> Status {
    const comm::Place own = {.rank = r, .world = size, .source = "--ranks"};
    JIGE_TRY(auto joined, comm::join_group(join_options(own, listener.address()), rings_of_all,
                                           r == 0 ? &listener : nullptr));
    return run_over(std::move(joined), rings_of_all, body);
  };
  JIGE_TRY(const auto ends,
           run_rank_processes({.count = size, .signal_s = kSignalSeconds}, run_rank));
  return first_cause(ends);
}

Status CollectiveFlags::run(const Body& body) const {
  const InterruptScope interrupts;
  const bool placed = rank >= 0 || world > 0 || !rendezvous.empty();
  if (ranks > 0 && placed) {
    return fail(Code::kInvalidArgument,
                "--ranks starts ranks by itself and goes with neither --rank, --world nor "
                "--rendezvous");
  }
  if (transport == "threads" && ranks == 0) {
    return fail(Code::kInvalidArgument, "--transport threads goes with --ranks N");
  }
  if (ranks > 0) return transport == "threads" ? run_threads(body) : run_processes(body);
  JIGE_TRY(const comm::Place own, place());
  JIGE_TRY(const comm::RingPlan rings_of_all, plan(own.world));
  comm::Address address;
  if (own.world > 1) {
    JIGE_TRY(address, of_flag("--rendezvous", comm::parse_address(rendezvous)));
  }
  JIGE_TRY(auto joined, comm::join_group(join_options(own, std::move(address)), rings_of_all));
  return run_over(std::move(joined), rings_of_all, body);
}

}  // namespace jige::cli
