// jige bench collective: time and bandwidth of collectives between ranks.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/collective_bench.h"
#include "cli/collective_flags.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "train/process_memory.h"

namespace jige::cli {
namespace {

class BenchCollectiveCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Times collectives between processes or threads, with the options and columns of "
        "nccl-tests: out of place and in place, algorithm bandwidth, bus bandwidth (what a link "
        "carries), and elements that differ from a result computed without the collective. The "
        "result of a reduction has the same bits on every rank, transport and run.");
    flags.texts("[COLLECTIVE]...", collectives_,
                "all_reduce (if none), reduce_scatter, all_gather, broadcast, reduce, all_to_all");
    group_.declare(flags);
    flags.section("Amounts");
    flags.bytes("-b,--min-bytes SIZE", bytes_first_,
                "smallest whole; without it 32 KiB, or --max-bytes if that is less");
    flags.bytes("-e,--max-bytes SIZE", bytes_last_,
                "largest whole; without it 32 MiB, or --min-bytes if that is more");
    flags.integer("-f,--step-factor N", options_.factor, {.min = 1, .max = 1024},
                  "from one size to the next; 1: the smallest alone");
    flags.integer("-n,--iters N", iterations_, {.min = 1, .max = 1 << 20}, "that are timed");
    flags.integer("-w,--warmup-iters N", warmup_, {.min = 0, .max = 1 << 20}, "before them");
    flags.integer("-c,--check N", check_, {.min = 0, .max = 1}, "1: count wrong elements");
    flags.section("Data");
    flags.choice("-o,--op NAME", op_, {"sum", "min", "max", "avg"}, "of reductions");
    flags.choice("-d,--datatype NAME", dtype_, {"f32", "bf16", "f16", "i32"}, "of the elements");
    flags.integer("-r,--root N", root_, {.min = 0, .max = comm::kWorldMax},
                  "of broadcast and reduce");
    output_.declare(flags, "one JSON line for the group, then one a size");
    flags.example("jige bench collective --ranks 4");
    flags.example("jige bench collective --ranks 4 --transport tcp --ring 0,2,1,3 -b 1M -e 64M");
    flags.example(
        "mpirun -np 4 jige bench collective all_gather --rendezvous 10.0.0.1:29500 --json");
  }

  Status run() override {
    output_.apply();
    if (collectives_.empty()) collectives_ = {"all_reduce"};
    for (const std::string& name : collectives_) {
      JIGE_TRY(const comm::Collective collective, comm::parse_collective(name));
      if (collective == comm::Collective::kBarrier) {
        return fail(Code::kInvalidArgument, "a barrier moves no bytes: name another collective");
      }
    }
    JIGE_TRY(options_.redop, comm::parse_redop(op_));
    JIGE_TRY(options_.dtype, parse_dtype(dtype_));
    options_.iterations = static_cast<int>(iterations_);
    options_.warmup = static_cast<int>(warmup_);
    options_.root = static_cast<int>(root_);
    options_.check = check_ != 0;
    choose_sizes();
    if (options_.bytes_last < options_.bytes_first) {
      return fail(Code::kInvalidArgument, "--max-bytes is {}, less than --min-bytes, which is {}",
                  format_bytes(options_.bytes_last), format_bytes(options_.bytes_first));
    }
    if (group_.ranks > 0) {
      const int ranks = static_cast<int>(group_.ranks);
      JIGE_DO(check_root(ranks));
      JIGE_TRY(const comm::RingPlan plan, group_.plan(ranks));
      JIGE_DO(check_memory(ranks, ranks, comm::stream_memory_bytes("shm", ranks, plan)));
    }
    return group_.run([this](comm::Communicator& group) { return measure(group); });
  }

 private:
  // A given size moves the other one along where that was not given.
  void choose_sizes() {
    int64_t& first = options_.bytes_first;
    int64_t& last = options_.bytes_last;
    if (bytes_first_ > 0) first = bytes_first_;
    if (bytes_last_ > 0) last = bytes_last_;
    if (bytes_first_ == 0) first = std::min(first, last);
    if (bytes_last_ == 0) last = std::max(first, last);
  }

  Status check_root(int ranks) const {
    if (root_ < ranks) return {};
    return fail(Code::kInvalidArgument, "--root: {} is not one of {} ranks, 0 to {}", root_, ranks,
                ranks - 1);
  }

  // Whether `here` ranks of the group can have their buffers on this machine.
  Status check_memory(int here, int ranks, int64_t stream_bytes) const {
    const int64_t most = train::machine_memory_bytes();
    const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
    for (const std::string& name : collectives_) {
      CollectiveBenchOptions options = options_;
      JIGE_TRY(options.collective, comm::parse_collective(name));
      const int64_t each = bench_bytes(options, ranks, bench_sizes(options).back()) + stream_bytes;
      if (each <= most / here) continue;
      return fail(Code::kExhausted,
                  "--max-bytes: {} of {} takes {} on each of {} rank{} here, {} together, and this "
                  "machine has {}; choose a smaller one{}",
                  name, shown(options.bytes_last), shown(each), here, here == 1 ? "" : "s",
                  shown(std::min(each, INT64_MAX / here) * here), shown(most),
                  here == 1 ? "" : " or fewer ranks");
    }
    return {};
  }

  // The same once the group is there, for ranks that were started one by one; all hear of it.
  Status check_memory(comm::Communicator& group) const {
    comm::Transport& transport = group.transport();
    int here = 0;
    for (int r = 0; r < group.size(); ++r) {
      here += transport.host(r) == transport.host(group.rank()) ? 1 : 0;
    }
    const Status fits =
        check_memory(here, group.size(),
                     comm::stream_memory_bytes(transport.kind(), group.size(), group.plan()));
    if (!fits) transport.abort(fits.error());
    return fits;
  }

  // Runs on every rank; rank 0 prints.
  Status measure(comm::Communicator& group) const {
    JIGE_DO(check_root(group.size()));
    if (group_.ranks == 0) JIGE_DO(check_memory(group));
    const bool prints = group.rank() == 0;
    if (prints) print_head(group);
    int64_t wrong = 0;
    for (const std::string& name : collectives_) {
      CollectiveBenchOptions options = options_;
      JIGE_TRY(options.collective, comm::parse_collective(name));
      for (const int64_t bytes : bench_sizes(options)) {
        JIGE_TRY(const CollectiveRow row, bench_collective(group, options, bytes));
        if (prints) print_row(options, row);
        wrong += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
      }
    }
    if (wrong == 0) return {};
    return fail(Code::kInternal, "{} elements of the results are wrong", wrong);
  }

  void print_head(comm::Communicator& group) const {
    comm::Transport& transport = group.transport();
    if (output_.json) {
      Json hosts = Json::array();
      for (int r = 0; r < group.size(); ++r) hosts.push_back(transport.host(r));
      Json rings = Json::array();
      for (const comm::Ring& ring : group.plan().rings) {
        rings.push_back({{"order", ring.order}, {"weight", ring.weight}});
      }
      Json head = {{"ranks", group.size()},
                   {"transport", transport.kind()},
                   {"hosts", std::move(hosts)},
                   {"rings", std::move(rings)},
                   {"piece_bytes", group.plan().piece_bytes},
                   {"direct_bytes_max", group.options().direct_bytes_max}};
      if (group.plan().trees) head["tree_bytes_max"] = group.plan().trees->bytes_max;
      print_json(head);
      return;
    }
    std::string text = fmt::format("# {} rank{} over {}", group.size(),
                                   group.size() == 1 ? "" : "s", transport.kind());
    for (const comm::Ring& ring : group.plan().rings) {
      text += fmt::format(", ring {} (weight {})", fmt::join(ring.order, ","), ring.weight);
    }
    text += fmt::format(", directly up to {}", format_bytes(group.options().direct_bytes_max));
    if (group.plan().trees) {
      const auto bytes = std::max<int64_t>(0, group.plan().trees->bytes_max);
      text += fmt::format(", by trees up to {}", format_bytes(bytes));
    }
    text += "\n";
    text += fmt::format("#{:>62}{:>36}\n", "out-of-place", "in-place");
    text += fmt::format("#{:>11}{:>12}{:>6}{:>6}{:>5}", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; ++i) {
      text += fmt::format("{:>11}{:>8}{:>8}{:>7}", "time", "algbw", "busbw", "#wrong");
    }
    text += fmt::format("\n#{:>11}{:>12}{:>17}", "(B)", "(elements)", "");
    for (int i = 0; i < 2; ++i)
      text += fmt::format("{:>11}{:>8}{:>8}{:>7}", "(us)", "(GB/s)", "(GB/s)", "");
    print_text(text + "\n");
  }

  static std::string times_text(const CollectiveTimes& times) {
    return fmt::format("{:>11.2f}{:>8.3f}{:>8.3f}{:>7}", times.mean_us, times.algbw, times.busbw,
                       times.wrong ? std::to_string(*times.wrong) : "N/A");
  }

  static Json times_json(const CollectiveTimes& times) {
    return {{"time_us", times.mean_us},
            {"median_us", times.median_us},
            {"fastest_us", times.fastest_us},
            {"p99_us", times.p99_us},
            {"algbw_gb_per_s", times.algbw},
            {"busbw_gb_per_s", times.busbw},
            {"wrong", times.wrong ? Json(*times.wrong) : Json(nullptr)}};
  }

  void print_row(const CollectiveBenchOptions& options, const CollectiveRow& row) const {
    using enum comm::Collective;
    const comm::Collective c = options.collective;
    const bool reduces = c == kAllReduce || c == kReduceScatter || c == kReduce;
    const bool rooted = c == kBroadcast || c == kReduce;
    const std::string redop = reduces ? op_ : "none";
    const int root = rooted ? options.root : -1;
    if (output_.json) {
      print_json(Json{{"collective", comm::collective_name(c)},
                      {"bytes", row.bytes},
                      {"count", row.count},
                      {"type", dtype_},
                      {"redop", redop},
                      {"root", root},
                      {"out_of_place", times_json(row.out_of_place)},
                      {"in_place", times_json(row.in_place)}});
      return;
    }
    print_text(fmt::format(" {:>11}{:>12}{:>6}{:>6}{:>5}{}{}", row.bytes, row.count, dtype_, redop,
                           root, times_text(row.out_of_place), times_text(row.in_place)) +
               (collectives_.size() > 1 ? fmt::format("  {}\n", comm::collective_name(c)) : "\n"));
  }

  std::vector<std::string> collectives_;
  CollectiveFlags group_;
  int64_t bytes_first_ = 0, bytes_last_ = 0;  // 0: not given
  CollectiveBenchOptions options_;
  int64_t iterations_ = 20, warmup_ = 5, check_ = 1, root_ = 0;
  std::string op_ = "sum", dtype_ = "f32";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_collective_command() {
  return std::make_unique<BenchCollectiveCommand>();
}

}  // namespace jige::cli
