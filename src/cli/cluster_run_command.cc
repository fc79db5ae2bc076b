// jige cluster run: schedules the jobs of a Slurm partition.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cluster_demo.h"
#include "cli/cluster_demo_report.h"
#include "cli/cluster_flags.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cluster/policy_list.h"
#include "slurm/commands.h"
#include "slurm/scheduler.h"

extern char** environ;

namespace jige::cli {
namespace {

constexpr double kGbit = 1e9 / 8;
constexpr double kProgressEvery_s = 5;

class ClusterRunCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Schedules the jobs of a Slurm partition with the policies of `jige cluster simulate`. "
        "Jobs are held when they come, released onto exactly the nodes that the policy chooses, "
        "and asked for a checkpoint and requeued where it takes their GPUs. Every decision goes "
        "to STATE/decisions.jsonl. Needs to be root, SlurmUser or an operator; docs/cluster.md "
        "says how to set Slurm up.");
    flags.section("Slurm");
    flags.text("--partition NAME", partition_, "whose held jobs are scheduled");
    flags.text("--state FOLDER", state_, "decisions and what is known about jobs");
    flags.number("--interval S", interval_s_, {.min = 0.05, .max = 60}, "between looks at Slurm");
    flags.number("--command-limit S", command_limit_s_, {.min = 0.1, .max = 600},
                 "for one call of a Slurm command");
    flags.text("--signal NAME", signal_, "asks a job that names a marker for a checkpoint");
    flags.number("--signal-after S", signal_after_s_, {.max = 86400},
                 "a job that has run for less gets no signal, which might end it; by default 30");
    flags.number("--checkpoint-wait S", checkpoint_wait_s_, {.max = 86400},
                 "for its marker to change, before it is requeued");
    flags.bytes("--log-size SIZE", log_bytes_max_,
                "of decisions.jsonl, which then becomes decisions.jsonl.1 and begins anew");
    flags.number("--dead-man S", dead_man_s_, {.max = 86400},
                 "without a sign of this process, held jobs are released; 0: never");
    flags.toggle("--no-comments", no_comments_,
                 "do not write into the AdminComment of jobs why they wait");
    flags.toggle("--dry-run", dry_run_, "say what would be done now, and end");
    flags.toggle("--until-empty", until_empty_, "end when no job is left");
    flags.section("Policy");
    flags.text("--policy NAME", policy_, "as in jige cluster simulate");
    flags.text("--policy-file FILE", policy_file_,
               "network of the policy `learned`, from jige cluster train-policy");
    flags.choice("--contention HOW", contention_, {"links", "none"},
                 "how jobs slow one another down");
    flags.number("--nic GBIT", nic_gbit_, {.min = 0.1, .max = 10000}, "of a node's network card");
    flags.number("--oversubscription X", oversubscription_, {.min = 1, .max = 100},
                 "bandwidth of a leaf's nodes over that of its uplinks");
    flags.number("--default-length S", default_length_s_, {.min = 1, .max = 1e8},
                 "of jobs that name neither a length nor a time limit");
    flags.section("Trying it out");
    flags.toggle("--demo", demo_,
                 "start a Slurm of 8 nodes with 4 pretended GPUs each on this machine, send it "
                 "jobs that sleep, compare with the simulation, and end it again");
    flags.integer("--jobs N", jobs_, {.min = 1, .max = 1000}, "of the demonstration");
    flags.number("--load X", load_, {.min = 0.01, .max = 10}, "of the demonstration");
    flags.number("--length S", length_s_, {.min = 10, .max = 1e6},
                 "median of its jobs, in seconds of the cluster");
    flags.integer("--seed N", seed_, {}, "of its jobs");
    flags.number("--time-scale X", time_scale_, {.min = 0.001, .max = 10000},
                 "seconds of the cluster in one second; by default 1, and 60 for --demo");
    flags.toggle("--emulate", emulate_,
                 "write each job's speed to STATE/rates, for `jige cluster demo-job`");
    output_.declare(flags, "print one JSON object");
    flags.example("jige cluster run --demo");
    flags.example("jige cluster run --partition gpu --state /var/lib/jige --dry-run");
    flags.example("jige cluster run --partition gpu --policy srtf/contention --nic 200");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    const InterruptScope interrupts;
    JIGE_DO(check_flags());
    // What is wrong with the policy is said before Slurm is asked, or started.
    if (!policy_file_.empty()) {
      JIGE_TRY(policy_context_.network, read_policy_network(policy_file_));
    }
    JIGE_DO(cluster::make_policy(policy_, "--policy", policy_context_));
    if (!demo_) return schedule(nullptr);
    if (state_ == kDefaultState) state_ = "";
    JIGE_TRY(const DemoSlurm slurm, DemoSlurm::start(""));
    if (state_.empty()) state_ = slurm.folder() + "/scheduler";
    if (!output_.json) {
      print_text(
          fmt::format("Slurm runs in {0}; look at it with\n  export SLURM_CONF={0}/slurm.conf"
                      "\n  jige cluster top --state {1}\n\n",
                      slurm.folder(), state_));
    }
    if (!time_scale_) time_scale_ = 60;
    emulate_ = true;
    partition_ = "jige";
    return schedule(&slurm);
  }

 private:
  static constexpr const char* kDefaultState = "jige-slurm";

  slurm::SchedulerOptions scheduler_options() const {
    slurm::SchedulerOptions options{.folder = state_};
    options.live = {.time_scale = time_scale_.value_or(1),
                    .defaults = {.length_s = default_length_s_},
                    .partition = partition_};
    options.network = {.nic_bytes_per_s = nic_gbit_ * kGbit, .oversubscription = oversubscription_};
    options.reconcile.checkpoint_wait_s = checkpoint_wait_s_;
    options.reconcile.signal_after_s = signal_after_s_.value_or(demo_ ? 1 : 30);
    options.notes.on = !no_comments_;
    options.dry_run = dry_run_;
    options.emulate = emulate_;
    options.log_bytes_max = log_bytes_max_;
    return options;
  }

  std::unique_ptr<cluster::Contention> make_contention(const cluster::ClusterSpec& spec) const {
    return contention_ == "none" ? cluster::make_no_contention(spec)
                                 : cluster::make_link_contention(spec, {});
  }

  // Flags that would do nothing are mistakes.
  Status check_flags() const {
    const bool learned = policy_.find("learned") != std::string::npos;
    if (learned && policy_file_.empty()) {
      return fail(Code::kInvalidArgument, "--policy {} needs --policy-file FILE", policy_);
    }
    if (!learned && !policy_file_.empty()) {
      return fail(Code::kInvalidArgument,
                  "--policy-file is for the policy learned, and --policy is {}; give one or the "
                  "other",
                  policy_);
    }
    const int tries = slurm::CommandOptions{}.tries;
    if (dead_man_s_ > 0 && dead_man_s_ < tries * command_limit_s_) {
      log_warn(
          "--dead-man {:g} is less than {} tries of --command-limit {:g}: where Slurm hangs, that "
          "is taken for the end of this process",
          dead_man_s_, tries, command_limit_s_);
    }
    for (const char* name : {"--jobs", "--load", "--length", "--seed"}) {
      if (demo_ || !flags_->given(name)) continue;
      return fail(Code::kInvalidArgument,
                  "{} is about the jobs of --demo; give both, or leave it out", name);
    }
    for (const char* name : {"--partition", "--dry-run", "--until-empty"}) {
      if (!demo_ || !flags_->given(name)) continue;
      return fail(Code::kInvalidArgument,
                  "{} is about a Slurm that is there, and --demo starts its own; give one of them",
                  name);
    }
    return {};
  }

  // run() has seen that there is one.
  std::unique_ptr<cluster::Policy> make_policy() const {
    Result<std::unique_ptr<cluster::Policy>> made =
        cluster::make_policy(policy_, "--policy", policy_context_);
    JIGE_CHECK(made.has_value(), "--policy {}", policy_);
    return std::move(*made);
  }

  Status schedule(const DemoSlurm* demo) {
    slurm::CommandOptions command_options{.limit_s = command_limit_s_,
                                          .signal = signal_,
                                          .partition = partition_,
                                          .cancel = &interrupt_flag()};
    slurm::SlurmCommands backend(command_options);
    JIGE_TRY(const slurm::Snapshot first, backend.snapshot());
    JIGE_TRY(const std::string topology, backend.topology());
    const slurm::SchedulerOptions options = scheduler_options();
    JIGE_TRY(slurm::Layout layout,
             slurm::Layout::create(first.nodes, partition_, topology, options.network));
    spec_ = layout.spec();
    slurm::SchedulerParts parts;
    parts.policy = [this] { return make_policy(); };
    parts.contention = [this](const slurm::Layout& used) { return make_contention(used.spec()); };
    log_info("partition {}: {}", partition_, cluster::describe(spec_));
    const RealClock clock;
    JIGE_TRY(
        const std::unique_ptr<slurm::Scheduler> scheduler,
        slurm::Scheduler::create(backend, clock, std::move(layout), options, std::move(parts)));
    if (dry_run_) return show_plan(*scheduler);
    if (dead_man_s_ > 0) JIGE_DO(start_dead_man(scheduler->epoch()));
    if (demo) prepare_demo(*demo);
    JIGE_DO(loop(*scheduler, demo));
    if (scheduler->live().jobs().empty()) scheduler->end_in_order();
    return demo ? report_demo(*scheduler) : report(*scheduler);
  }

  Status loop(slurm::Scheduler& scheduler, const DemoSlurm* demo) {
    const StopWatch watch;
    double shown_s = 0;
    while (!interrupted()) {
      const StopWatch step;
      if (demo) JIGE_DO(submit_due(*demo));
      JIGE_DO(scheduler.step());
      ended_ += std::ssize(scheduler.take_outcomes());
      seen_jobs_ = seen_jobs_ || !scheduler.live().jobs().empty();
      const bool all_sent = !demo || scene_.submitted.size() == scene_.workload.jobs.size();
      const bool all_ended = demo ? ended_ >= std::ssize(scene_.workload.jobs)
                                  : seen_jobs_ || scheduler.counts().steps > 4;
      if ((demo || until_empty_) && all_sent && all_ended && scheduler.live().jobs().empty()) break;
      if (demo && !output_.json && !output_.quiet && watch.seconds() > shown_s + kProgressEvery_s) {
        shown_s = watch.seconds();
        show_progress(scheduler, shown_s);
      }
      while (step.seconds() < interval_s_ && !interrupted()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return {};
  }

  void show_progress(const slurm::Scheduler& scheduler, double at_s) const {
    int64_t running = 0;
    for (const auto& [id, job] : scheduler.live().jobs()) running += job.started;
    print_text(fmt::format(
        "  {:3.0f} s: {} submitted, {} run, {} wait, {} have ended, {} preempted\n", at_s,
        scene_.submitted.size(), running, std::ssize(scheduler.live().jobs()) - running, ended_,
        scheduler.counts().preemptions));
  }

  void prepare_demo(const DemoSlurm& demo) {
    scene_.options = {.folder = demo.folder(),
                      .state = state_,
                      .jobs = jobs_,
                      .load = load_,
                      .length_s = length_s_,
                      .time_scale = *time_scale_,
                      .seed = seed_};
    scene_.spec = spec_;
    scene_.workload = demo_workload(scene_.options, spec_);
    scene_.slurm_folder = demo.folder();
    demo_start_s_ = unix_now_s();
  }

  Status submit_due(const DemoSlurm& demo) {
    const double now_s = (unix_now_s() - demo_start_s_) * *time_scale_;
    while (scene_.submitted.size() < scene_.workload.jobs.size()) {
      const size_t next = scene_.submitted.size();
      const int64_t since_ns =
          scene_.workload.jobs[next].arrival_ns - scene_.workload.jobs[0].arrival_ns;
      if (static_cast<double>(since_ns) > now_s * cluster::kSecond) return {};
      const double at_s = unix_now_s();
      JIGE_TRY(const int64_t id,
               submit_demo_job(scene_.options, demo, scene_.workload, next, spec_));
      scene_.submitted.push_back({.id = id, .unix_s = at_s});
    }
    return {};
  }

  Status report_demo(const slurm::Scheduler& scheduler) {
    const std::unique_ptr<cluster::Policy> policy = make_policy();
    JIGE_TRY(const DemoReport report,
             make_demo_report(scene_, make_contention(spec_), *policy, unix_now_s()));
    if (output_.json) {
      Json json = demo_json(report);
      json["policy"] = policy_;
      json["time_scale"] = *time_scale_;
      json["folder"] = scene_.slurm_folder;
      json.update(counts_json(scheduler));
      print_json(json);
    } else {
      print_text("\n" + demo_text(report));
    }
    if (interrupted()) return {};
    if (report.findings.double_booked + report.findings.unfinished > 0) {
      return fail(Code::kInternal, "the demonstration found faults; see above");
    }
    return {};
  }

  static Json counts_json(const slurm::Scheduler& scheduler) {
    const slurm::SchedulerCounts& counts = scheduler.counts();
    return {{"steps", counts.steps},          {"blind_steps", counts.blind_steps},
            {"decisions", counts.decisions},  {"places", counts.places},
            {"requeues", counts.preemptions}, {"failures", counts.failures}};
  }

  Status report(const slurm::Scheduler& scheduler) const {
    Json json = counts_json(scheduler);
    json["ended"] = ended_;
    json["left"] = scheduler.live().jobs().size();
    if (output_.json) {
      print_json(json);
    } else {
      print_text(fmt::format("{} jobs ended, {} are left; {} placed, {} requeued\n", ended_,
                             scheduler.live().jobs().size(), scheduler.counts().places,
                             scheduler.counts().preemptions));
    }
    return {};
  }

  Status show_plan(slurm::Scheduler& scheduler) const {
    JIGE_DO(scheduler.step());
    Json list = Json::array();
    std::string text;
    for (const slurm::Action& action : scheduler.last_actions()) {
      const std::vector<std::string> nodes = scheduler.live().layout().names_of(action.placement);
      list.push_back(
          {{"step", slurm::step_name(action.step)}, {"job", action.job}, {"nodes", nodes}});
      text += fmt::format("  {} job {} {}\n", slurm::step_name(action.step), action.job,
                          fmt::join(nodes, ","));
    }
    if (output_.json) {
      print_json({{"dry_run", true}, {"actions", list}});
    } else {
      print_text(text.empty() ? "Nothing to do.\n" : "Would do now:\n" + text);
    }
    return {};
  }

  // A process of its own session, which outlives this one.
  Status start_dead_man(int64_t epoch) const {
    std::vector<std::string> words = {"jige",
                                      "cluster",
                                      "dead-man",
                                      "--state",
                                      state_,
                                      "--partition",
                                      partition_,
                                      "--after",
                                      fmt::format("{:g}", dead_man_s_),
                                      "--epoch",
                                      fmt::format("{}", epoch),
                                      "--quiet"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_init(&files);
    const std::string log = state_ + "/dead-man.log";
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    pid_t pid = 0;
    const int error =
        posix_spawn(&pid, "/proc/self/exe", &files, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) return fail(Code::kIo, "the dead-man timer could not be started ({})", error);
    return {};
  }

  std::string partition_ = "jige", state_ = kDefaultState, signal_ = "USR1", policy_ = "greedy";
  std::string contention_ = "links", policy_file_;
  double interval_s_ = 0.25, command_limit_s_ = 10, checkpoint_wait_s_ = 60;
  double dead_man_s_ = 60, nic_gbit_ = 100, oversubscription_ = 1;
  double default_length_s_ = 3600, load_ = 0.9, length_s_ = 1200;
  std::optional<double> time_scale_, signal_after_s_;
  int64_t jobs_ = 60, seed_ = 1;
  bool no_comments_ = false;
  bool dry_run_ = false, until_empty_ = false, demo_ = false, emulate_ = false;
  OutputFlags output_;
  const Flags* flags_ = nullptr;
  cluster::PolicyContext policy_context_;
  cluster::ClusterSpec spec_;
  DemoScene scene_;
  double demo_start_s_ = 0;
  int64_t log_bytes_max_ = slurm::SchedulerOptions{}.log_bytes_max;
  int64_t ended_ = 0;
  bool seen_jobs_ = false;
};

}  // namespace

std::unique_ptr<Command> make_cluster_run_command() {
  return std::make_unique<ClusterRunCommand>();
}

}  // namespace jige::cli
