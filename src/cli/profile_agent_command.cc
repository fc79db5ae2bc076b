// jige profile agent: the end of links on a host that is profiled.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "profile/host_list.h"
#include "profile/link_agent.h"

namespace jige::cli {
namespace {

class ProfileAgentCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Runs on every host whose links `jige profile links --hosts` and `jige plan rings --hosts` "
        "measure: it sends data to the other agents, and takes theirs, when they say so. It serves "
        "one profiler at a time, keeps nothing, and ends on Ctrl-C. What it says is not encrypted: "
        "run it in a network you trust, with a token against mistakes.");
    flags.text("--listen ADDRESS", listen_,
               fmt::format("ADDRESS[:PORT] by which the other hosts reach this one, 0.0.0.0 for "
                           "all; port {} unless given, 0 for a free one",
                           profile::kAgentPort));
    flags.text("--token WORD", token_, "only profilers and agents that know it are served");
    flags.number("--idle-seconds S", idle_s_, {.min = 1, .max = 1e6},
                 "without a word, after which a connection ends");
    output_.declare(flags, "one JSON line with the address, once it listens");
    flags.example("jige profile agent --listen 10.0.0.2 --token lab");
    flags.example("jige profile agent --listen 127.0.0.1:0 --json");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    const InterruptScope interrupts;
    JIGE_TRY(const comm::Address listen, profile::parse_agent_address(listen_, "--listen"));
    JIGE_TRY(const std::unique_ptr<profile::LinkAgent> agent,
             profile::LinkAgent::start({.listen = listen, .token = token_, .idle_s = idle_s_}));
    const std::string address = agent->address().text();
    if (output_.json) {
      print_json({{"listening", address}});
    } else {
      print_text(fmt::format("listening on {}; Ctrl-C ends it\n", address));
    }
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return {};
  }

 private:
  std::string listen_ = "0.0.0.0", token_;
  double idle_s_ = 1800;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_profile_agent_command() {
  return std::make_unique<ProfileAgentCommand>();
}

}  // namespace jige::cli
