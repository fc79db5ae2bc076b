#include "slurm/scheduler.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

namespace jige::slurm {
namespace {

using cluster::kSecond;

constexpr int64_t kAwayMax_s = 7 * 86400;  // between two runs; more is a clock that jumped
constexpr int64_t kSaveEvery_ns = kSecond;
constexpr std::string_view kEpochWord = "epoch=";

// The number behind "epoch=" in an AdminComment; 0: none.
int64_t epoch_in(std::string_view text) {
  const size_t at = text.find(kEpochWord);
  if (at == std::string_view::npos) return 0;
  int64_t epoch = 0;
  std::from_chars(text.data() + at + kEpochWord.size(), text.data() + text.size(), epoch);
  return epoch;
}

bool write_whole(const std::string& path, int flags, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644);
  if (fd < 0) return false;
  const bool whole = ::pwrite(fd, text.data(), text.size(), 0) == std::ssize(text) &&
                     ((flags & O_TRUNC) != 0 || ftruncate(fd, std::ssize(text)) == 0);
  close(fd);
  return whole;
}

// Not synced: a lost one is a second old at most. Whether it was written.
bool write_plainly(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  if (write_whole(temporary, O_CREAT | O_TRUNC, text)) {
    return rename(temporary.c_str(), path.c_str()) == 0;
  }
  unlink(temporary.c_str());
  return false;
}

}  // namespace

bool marker_changed_since(const std::string& path, int64_t since_wall_ns) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return false;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age_ns =
      (now.tv_sec - info.st_mtim.tv_sec) * kSecond + (now.tv_nsec - info.st_mtim.tv_nsec);
  return age_ns <= RealClock().now_ns() - since_wall_ns;
}

Scheduler::Scheduler(Backend& backend, const Clock& clock, SchedulerOptions options,
                     SchedulerParts parts, DecisionLog log)
    : backend_(backend),
      clock_(clock),
      options_(std::move(options)),
      parts_(std::move(parts)),
      log_(std::move(log)),
      notes_(options_.notes) {}

Scheduler::~Scheduler() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(Backend& backend, const Clock& clock,
                                                     Layout layout, SchedulerOptions options,
                                                     SchedulerParts parts) {
  int lock_fd = -1;
  if (!options.dry_run) {
    JIGE_DO(make_folders(options.folder));
    if (options.emulate) JIGE_DO(make_folders(options.folder + "/rates"));
    const std::string path = options.folder + "/lock";
    lock_fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_fd < 0) return fail(Code::kIo, "{}: cannot be made", path);
    if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
      close(lock_fd);
      return fail(Code::kUnavailable, "{}: another jige cluster run uses this folder",
                  options.folder);
    }
  }
  std::optional<LogFile> file;
  if (!options.dry_run) {
    Result<LogFile> opened =
        LogFile::open(options.folder + "/decisions.jsonl", options.log_bytes_max);
    if (!opened) {
      close(lock_fd);
      return tl::unexpected<Error>(std::move(opened.error()));
    }
    file.emplace(std::move(*opened));
  }
  std::unique_ptr<Scheduler> scheduler(new Scheduler(
      backend, clock, std::move(options), std::move(parts), DecisionLog(std::move(file))));
  scheduler->lock_fd_ = lock_fd;
  JIGE_DO(scheduler->load(std::move(layout)));
  // No job may carry an epoch that a scheduler after this one could use again.
  if (scheduler->options_.dry_run) return scheduler;
  JIGE_DO(scheduler->save());
  // A timer that is started now must not take the word of an earlier one's end for this one's.
  scheduler->beat("alive");
  return scheduler;
}

Moment Scheduler::now() const {
  const int64_t wall_ns = clock_.now_ns();
  const auto passed = static_cast<double>(wall_ns - base_wall_ns_) * options_.live.time_scale;
  return {.wall_ns = wall_ns,
          .cluster_ns = base_cluster_ns_ + static_cast<int64_t>(passed),
          .unix_s = static_cast<int64_t>(unix_now_s())};
}

void Scheduler::make_live(Layout layout) {
  std::unique_ptr<cluster::Contention> contention = parts_.contention(layout);
  std::unique_ptr<cluster::Policy> policy = parts_.policy();
  live_ = std::make_unique<LiveCluster>(std::move(layout), options_.live, std::move(contention),
                                        *policy);
  policy_ = std::move(policy);
}

Status Scheduler::load(Layout layout) {
  base_wall_ns_ = clock_.now_ns();
  epoch_ = std::max<int64_t>(1, static_cast<int64_t>(unix_now_s()));
  make_live(std::move(layout));
  const std::string file = path("state.json");
  Result<std::string> text = read_file(file);
  if (!text && text.error().code == Code::kNotFound) return {};
  if (!text) return tl::unexpected<Error>(std::move(text.error()));
  JIGE_TRY(const Json state, parse_json(*text, file));
  if (!state.is_object()) return fail(Code::kCorrupt, "{}: is no object", file);
  JIGE_TRY(const int64_t version, get_int(state, "version", file));
  if (version != 1) return fail(Code::kUnsupported, "{}: version {}, not 1", file, version);
  JIGE_TRY(const int64_t epoch, get_saved_int(state, "epoch", file));
  JIGE_TRY(const int64_t unix_s, get_saved_int(state, "unix_s", file));
  JIGE_TRY(const int64_t cluster_ns, get_saved_int(state, "cluster_ns", file));
  epoch_ = std::max(epoch_, epoch + 1);
  const int64_t away_s =
      std::clamp<int64_t>(static_cast<int64_t>(unix_now_s()) - unix_s, 0, kAwayMax_s);
  base_cluster_ns_ =
      cluster_ns +
      static_cast<int64_t>(static_cast<double>(away_s) * options_.live.time_scale) * kSecond;
  const auto jobs = state.find("jobs");
  if (jobs == state.end()) return fail(Code::kCorrupt, "{}: has no jobs", file);
  return live_->restore(*jobs, file);
}

Status Scheduler::save() {
  const Moment moment = now();
  saved_wall_ns_ = moment.wall_ns;
  const Json state{{"version", 1},
                   {"epoch", epoch_},
                   {"unix_s", moment.unix_s},
                   {"cluster_ns", moment.cluster_ns},
                   {"jobs", live_->save()}};
  return write_file_atomic(path("state.json"), dump_json(state) + "\n");
}

void Scheduler::beat(std::string_view word) {
  const std::string text = fmt::format("{} {} {}\n", word, epoch_, ++beats_);
  // On a full disk the blocks of the file that is there can still be written: the timer must not
  // take this for its death.
  if (!write_plainly(path("heartbeat"), text)) write_whole(path("heartbeat"), 0, text);
}

void Scheduler::end_in_order() {
  if (options_.dry_run) return;
  if (const Status saved = save(); !saved) log_warn("{}", saved.error().message);
  beat("ended");
}

// One who started later has a higher epoch, which the jobs it released carry.
Status Scheduler::check_epoch(const Snapshot& snapshot) const {
  for (const SeenJob& job : snapshot.jobs) {
    if (job.partition != options_.live.partition || job.state == SeenState::kGone) continue;
    if (!job.admin_comment.starts_with(kPlacedMark)) continue;
    if (const int64_t epoch = epoch_in(job.admin_comment); epoch > epoch_) {
      return fail(
          Code::kUnavailable,
          "job {} was placed by another scheduler (epoch {}, ours {}), which has begun later; "
          "this one ends",
          job.id, epoch, epoch_);
    }
  }
  return {};
}

Status Scheduler::step() {
  ++counts_.steps;
  if (!options_.dry_run) beat("alive");
  Result<Snapshot> snapshot = backend_.snapshot();
  const Moment moment = now();
  if (!snapshot) {
    ++counts_.blind_steps;
    if (options_.dry_run) return tl::unexpected<Error>(std::move(snapshot.error()));
    if (snapshot.error().code == Code::kCancelled) return {};
    if (!blind_) {
      log_.note("blind", snapshot.error().message, moment);
      log_warn("Slurm does not answer; jobs stay as they are: {}", snapshot.error().message);
    }
    blind_ = true;
    return {};
  }
  if (blind_) log_.note("seeing", "Slurm answers again", moment);
  blind_ = false;
  JIGE_DO(check_epoch(*snapshot));
  follow_nodes(*snapshot);
  if (snapshot->closed != live_->closed()) {
    log_.note("partition",
              snapshot->closed.empty()
                  ? "it starts jobs again"
                  : "it is " + snapshot->closed + ": nothing is placed until it is up",
              moment);
  }
  if (live_->full()) rebuild(live_->layout(), "the list of jobs was full");
  live_->absorb(*snapshot, moment);
  log_events(moment);
  log_.begin(*live_, moment, counts_.decisions);
  const bool decided = live_->decide(moment, &log_);
  if (decided) {
    ++counts_.decisions;
    log_.end();
  }
  actions_ = plan_actions(*live_, moment, options_.reconcile, marker_changed_since);
  log_events(moment);
  if (options_.dry_run) return {};
  act(moment);
  write_notes(*snapshot);
  // Behind the actions: nobody should wait for a disk, and what is lost in a crash is a second of
  // what jobs had.
  if (moment.wall_ns - saved_wall_ns_ > kSaveEvery_ns) {
    const Status saved = save();
    const std::string fault = saved ? "" : saved.error().message;
    if (!saved && fault != save_fault_) log_warn("{}; tried again every second", fault);
    save_fault_ = fault;
  }
  if (options_.emulate) write_rates();
  write_status(moment);
  return {};
}

void Scheduler::act(const Moment& now_before) {
  for (const Action& action : actions_) {
    if (action.step != Step::kSplit && !live_->jobs().contains(action.job)) continue;
    beat("alive");  // where Slurm is slow, a step takes longer than the timer waits
    const Moment begun = now();
    const int64_t job = action.job;
    Status status;
    switch (action.step) {
      case Step::kPlace:
        ++counts_.places;
        status = backend_.place(
            job, live_->layout().names_of(action.placement),
            fmt::format("{} {}{} n={}", kPlacedMark, kEpochWord, epoch_, counts_.places));
        break;
      case Step::kHold:
        status = backend_.hold(job);
        break;
      case Step::kCheckpoint:
        status = backend_.checkpoint(job);
        break;
      case Step::kRequeue:
        ++counts_.preemptions;
        status = backend_.requeue_held(job);
        break;
      case Step::kSplit:
        status = backend_.split(job, action.task);
        break;
    }
    counts_.failures += !status;
    const Moment ended = now();
    note_outcome(*live_, action, status, begun, ended);
    const auto took_ns = static_cast<double>(ended.wall_ns - begun.wall_ns);
    log_.action(*live_, action, status, took_ns / kSecond, now_before);
    if (status) continue;
    // Who does not answer is not asked for the rest; the next step sees what is left to do.
    const Code code = status.error().code;
    if (code == Code::kCancelled || code == Code::kUnavailable) break;
  }
  log_events(now_before);
}

// Behind the actions, so that no job is noted that has just been placed.
void Scheduler::write_notes(const Snapshot& snapshot) {
  for (const JobNote& note : notes_.plan(snapshot, *live_, log_, clock_.now_ns())) {
    beat("alive");
    const Status status = backend_.annotate(note.job, note.admin_comment);
    if (!status && status.error().code != Code::kCancelled && !std::exchange(notes_fault_, true)) {
      log_warn("users are not told why their jobs wait, which is said once: {}",
               status.error().message);
    }
    if (!notes_.wrote(status, clock_.now_ns())) return;
  }
}

void Scheduler::log_events(const Moment& moment) {
  for (const LiveEvent& event : live_->take_events()) {
    log_.event(event, moment);
    if (event.kind != "start" || event.seconds < 0) continue;
    ++counts_.starts;
    counts_.start_s_sum += event.seconds;
    counts_.start_s_max = std::max(counts_.start_s_max, event.seconds);
  }
  for (LiveOutcome& outcome : live_->take_outcomes()) outcomes_.push_back(std::move(outcome));
}

// Jobs that run on a node that went keep their places in the new layout, too.
void Scheduler::follow_nodes(const Snapshot& snapshot) {
  std::vector<SeenNode> nodes = snapshot.nodes;
  for (SeenNode& node : live_->nodes_with_jobs()) nodes.push_back(std::move(node));
  if (live_->layout().is_of(nodes, options_.live.partition)) return;
  const auto make = [&]() -> Result<Layout> {
    JIGE_TRY(const std::string topology, backend_.topology());
    return Layout::create(nodes, options_.live.partition, topology, options_.network);
  };
  Result<Layout> layout = make();
  if (layout) {
    layout_fault_.clear();
    const std::string now_is = cluster::describe(layout->spec());
    return rebuild(std::move(*layout), "nodes or GPUs came or went; now " + now_is);
  }
  // Tried again with the next snapshot, but said once.
  if (std::exchange(layout_fault_, layout.error().message) == layout.error().message) return;
  log_.note("rebuilt", "nodes stay as they were known: " + layout_fault_, now());
  log_warn("nodes stay as they were known: {}", layout_fault_);
}

// The same jobs in a new object, as after a restart.
void Scheduler::rebuild(Layout layout, const std::string& why) {
  log_.note("rebuilt", why, now());
  const std::unique_ptr<LiveCluster> before = std::move(live_);
  const std::unique_ptr<cluster::Policy> policy_before = std::move(policy_);  // `before` names it
  make_live(std::move(layout));
  if (const Status restored = live_->go_on_from(*before); !restored) {
    log_error("{}", restored.error().message);
  }
}

void Scheduler::write_rates() {
  for (const auto& [id, job] : live_->jobs()) {
    if (!job.started || !live_->wanted(job)) continue;
    const std::string text = fmt::format("{:.6f}\n", live_->state().progress(job.id));
    std::string& written = rates_[id];
    if (written == text) continue;
    written = text;
    write_plainly(fmt::format("{}/rates/{}", options_.folder, id), text);
  }
  std::erase_if(rates_, [&](const auto& entry) { return !live_->jobs().contains(entry.first); });
}

void Scheduler::write_status(const Moment& moment) {
  if (status_wall_ns_ >= 0 &&
      static_cast<double>(moment.wall_ns - status_wall_ns_) < options_.status_s * kSecond) {
    return;
  }
  status_wall_ns_ = moment.wall_ns;
  const cluster::ClusterState& state = live_->state();
  Json nodes = Json::array(), jobs = Json::array(), left_alone = Json::array();
  for (int32_t i = 0; i < state.spec().node_count(); ++i) {
    if (live_->layout().name_of(i).empty()) continue;
    nodes.push_back(
        {{"name", live_->layout().name_of(i)},
         {"leaf", state.spec().leaf_of(i)},
         {"gpus", live_->layout().gpus_of(i)},
         {"free", live_->seen_free()[static_cast<size_t>(i)]},
         {"blocked", state.blocked(i) - state.spec().gpus_per_node + live_->layout().gpus_of(i)}});
  }
  for (const auto& [id, job] : live_->jobs()) {
    const bool runs = state.at(job.id).phase == cluster::Phase::kRunning;
    Json item{
        {"job", id},
        {"name", job.seen.array.task < 0 ? job.seen.name
                                         : fmt::format("{}_{} {}", job.seen.array.array,
                                                       job.seen.array.task, job.seen.name)},
        {"user", job.seen.user},
        {"gpus", state.job(job.id).gpus},
        {"seen", seen_name(job.seen.state)},
        {"left_s", state.remaining_ns(job.id) / kSecond},
        {"age_s", static_cast<double>(state.now_ns() - state.job(job.id).arrival_ns) / kSecond}};
    if (runs) {
      item["wanted"] = live_->layout().names_of(state.at(job.id).placement);
      item["progress"] = state.progress(job.id);
    } else {
      const WaitingReason* why = log_.waiting(id);
      item["why"] = why ? why->text : "";
    }
    jobs.push_back(std::move(item));
  }
  for (const auto& [id, why] : live_->refused()) left_alone.push_back({{"job", id}, {"why", why}});
  const Json status{{"time_s", moment.unix_s},
                    {"cluster_s", static_cast<double>(moment.cluster_ns) / kSecond},
                    {"epoch", epoch_},
                    {"steps", counts_.steps},
                    {"decisions", counts_.decisions},
                    {"preemptions", counts_.preemptions},
                    {"closed", live_->closed()},
                    {"nodes", std::move(nodes)},
                    {"jobs", std::move(jobs)},
                    {"refused", std::move(left_alone)}};
  write_plainly(path("status.json"), dump_json(status) + "\n");
}

}  // namespace jige::slurm
