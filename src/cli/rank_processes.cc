#include "cli/rank_processes.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/rank_pages.h"
#include "comm/local_ranks.h"

namespace jige::cli {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(20);

// Until all ranks have ended.
void look_after(comm::LocalRanks& ranks, const RankPages& pages,
                const RankProcessOptions& options) {
  std::optional<StopWatch> failed;
  std::vector<double> farewell_from_s(static_cast<size_t>(options.count));  // on that watch
  std::optional<StopWatch> told;
  // Whether the rank has had its time behind the failure of another.
  const auto had_farewell = [&](int r) {
    const bool writing = pages.writing(r);
    const bool stands = ranks.stands_still(r);
    double& from_s = farewell_from_s[static_cast<size_t>(r)];
    if (writing && !stands) from_s = failed->seconds();
    const bool long_one = stands ? writing : r == 0;
    return failed->seconds() - from_s > (long_one ? options.farewell_s_rank_0 : options.farewell_s);
  };
  for (;;) {
    ranks.look();
    bool running = false;
    for (int r = 0; r < options.count; ++r) {
      const std::optional<int> code = ranks.exit_code(r);
      running |= !code.has_value();
      // Ranks that were stopped are no failure, however long rank 0 writes its checkpoint.
      const bool fine = !code || *code == 0 || *code == exit_code(Code::kCancelled);
      if (!fine && !failed) failed.emplace();
      const bool told_long = told && options.signal_s && told->seconds() > *options.signal_s;
      if (!code && (told_long || (failed && had_farewell(r)))) kill(ranks.pid(r), SIGKILL);
    }
    if (!running) return;
    if (interrupted() && !told) {
      told.emplace();
      ranks.send_signal(SIGINT);
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace

Result<std::vector<RankEnd>> run_rank_processes(const RankProcessOptions& options,
                                                const RankBody& body) {
  JIGE_TRY(RankPages pages, RankPages::make(options.count));
  JIGE_TRY(comm::LocalRanks started, comm::LocalRanks::start(options.count, [&](int rank) {
             setpgid(0, 0);
             Status ran = body(rank, pages.writing(rank));
             if (Status flushed = flush_output(); ran && !flushed) ran = flushed;
             if (!ran) pages.put(rank, ran.error());
             return ran ? 0 : exit_code(ran.error().code);
           }));
  look_after(started, pages, options);
  const std::vector<int> codes = started.wait();
  // Nobody reads what rank 0 prints any more: that ends a command as it does without ranks.
  if (codes[0] == 128 + SIGPIPE) raise(SIGPIPE);
  std::vector<RankEnd> ends(codes.size());
  for (int r = 0; r < options.count; ++r) {
    const int code = codes[static_cast<size_t>(r)];
    if (code != 0) ends[static_cast<size_t>(r)] = {pages.get(r, code), pages.has(r)};
  }
  return ends;
}

Status first_cause(const std::vector<RankEnd>& ends) {
  std::vector<Error> told, shown;
  for (const RankEnd& end : ends) {
    if (end.error) (end.told ? told : shown).push_back(*end.error);
  }
  return first_cause(told.empty() ? shown : told);
}

}  // namespace jige::cli
