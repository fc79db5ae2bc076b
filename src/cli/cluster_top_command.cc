// jige cluster top: what a scheduler and its cluster are doing, as they do it.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "cli/cluster_frame.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace jige::cli {
namespace {

constexpr int kUnlimited = 100'000;  // a file or a pipe
constexpr double kStale_s = 10;

class ClusterTopCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Shows what `jige cluster run` is doing: GPUs in use, jobs that run and how fast, jobs "
        "that wait and why. Redraws until Ctrl-C.");
    flags.text("--state FOLDER", state_, "of the scheduler");
    flags.toggle("--once", once_, "one picture, then end");
    flags.number("--seconds S", seconds_, {.min = 0.05, .max = 3600}, "between pictures");
    output_.declare(flags, "one JSON line a picture");
    flags.example("jige cluster top --state /var/lib/jige");
    flags.example("jige cluster top --once --json");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    do {
      const std::string path = state_ + "/status.json";
      JIGE_DO(check_file("--state", path, "the folder of a jige cluster run"));
      JIGE_TRY(const std::string text, read_file(path));
      JIGE_TRY(const Json status, parse_json(text, path));
      if (output_.json) {
        print_json(status);
      } else {
        if (terminal && !once_) print_exact(kHomeAndClear);
        print_text(age_line(status) + frame(status));
      }
      const StopWatch watch;
      while (!once_ && watch.seconds() < seconds_ && !interrupted()) {
        std::this_thread::sleep_for(kSignalPoll);
      }
    } while (!once_ && !interrupted());
    return {};
  }

 private:
  static std::string age_line(const Json& status) {
    const auto now_s =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const auto found = status.is_object() ? status.find("time_s") : status.end();
    if (!status.is_object() || found == status.end() || !found->is_number()) return "";
    const double age_s = now_s - found->get<double>();
    if (age_s < kStale_s) return "";
    return fmt::format("  The scheduler has said nothing for {:.0f} s.\n", age_s);
  }

  static std::string frame(const Json& status) {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return render_cluster(status, size.ws_row, size.ws_col);
    }
    return render_cluster(status, kUnlimited, kUnlimited);
  }

  std::string state_ = "jige-slurm";
  bool once_ = false;
  double seconds_ = 1;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_top_command() {
  return std::make_unique<ClusterTopCommand>();
}

}  // namespace jige::cli
