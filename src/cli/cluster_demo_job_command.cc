// jige cluster demo-job: a job of the demonstration, started by Slurm.
#include <cstdlib>
#include <string>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cluster/trace_fields.h"
#include "slurm/demo_job.h"

namespace jige::cli {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

class ClusterDemoJobCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "A pretended job of `jige cluster run --demo`, which Slurm starts: computes nothing, gets "
        "on at the speed in STATE/rates, writes its log and its checkpoints to FOLDER/jobs.");
    flags.text("--folder FOLDER", options_.folder, "of the demonstration's Slurm");
    flags.text("--state FOLDER", options_.state, "of the scheduler");
    flags.integer("--work US", options_.total_us, {.min = 0}, "microseconds of work when alone");
    flags.integer("--checkpoint-every US", options_.checkpoint_every_us, {.min = 1}, "of work");
    flags.example("sbatch --wrap 'exec jige cluster demo-job --folder F --state S --work 5000000'");
  }

  Status run() override {
    const std::optional<double> id = cluster::parse_double(environment("SLURM_JOB_ID", ""));
    if (!id) return fail(Code::kUnavailable, "SLURM_JOB_ID is not set: Slurm starts this command");
    options_.id = static_cast<int64_t>(*id);
    options_.nodes = environment("SLURM_JOB_NODELIST", "none");
    options_.gpus = environment("CUDA_VISIBLE_DEVICES", "none");
    options_.restarts = std::atoll(environment("SLURM_RESTART_COUNT", "0").c_str());
    return slurm::DemoJob(options_).run();
  }

 private:
  slurm::DemoJobOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_demo_job_command() {
  return std::make_unique<ClusterDemoJobCommand>();
}

}  // namespace jige::cli
