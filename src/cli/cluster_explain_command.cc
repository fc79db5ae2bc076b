// jige cluster explain: why a job is where it is, or still waits.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/log_file.h"
#include "cli/cluster_explain.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/output.h"

namespace jige::cli {
namespace {

class ClusterExplainCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Tells the story of a job from the decisions of `jige cluster run`: why it runs here, why "
        "it waits, what was evicted for it and what that gained, and what evicted it. Times are "
        "since the job was first seen.");
    flags.text("JOB", job_, "Slurm's number of it");
    flags.text("--state FOLDER", state_, "of the scheduler");
    output_.declare(flags, "the lines of the decision log about it, as they are");
    flags.example("jige cluster explain 1234");
    flags.example("jige cluster explain 1234 --state /var/lib/jige --json");
  }

  Status run() override {
    output_.apply();
    int64_t job = 0;
    for (const char digit : job_) {
      if (digit < '0' || digit > '9' || job > 1'000'000'000'000) {
        return fail(Code::kInvalidArgument, "JOB: \"{}\" is no job number of Slurm", job_);
      }
      job = 10 * job + (digit - '0');
    }
    const std::string path = state_ + "/decisions.jsonl";
    JIGE_DO(check_file("--state", path, "the folder of a jige cluster run"));
    JIGE_TRY(const std::string log, read_log(path));
    const std::vector<Json> lines = lines_about(log, job, path);
    if (lines.empty()) {
      return fail(Code::kNotFound, "{}: nothing about job {}; is it in another partition?", path,
                  job);
    }
    if (output_.json) {
      for (const Json& line : lines) print_json(line);
    } else {
      print_text(explain_text(lines, job));
    }
    return {};
  }

 private:
  std::string job_, state_ = "jige-slurm";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_explain_command() {
  return std::make_unique<ClusterExplainCommand>();
}

}  // namespace jige::cli
