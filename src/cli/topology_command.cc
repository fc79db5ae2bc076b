// jige topology: devices, links and what they share.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/topology_flags.h"
#include "topology/fingerprint.h"
#include "topology/topology_json.h"
#include "topology/topology_svg.h"
#include "topology/topology_text.h"

namespace jige::cli {
namespace {

class TopologyCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Shows devices, the links between them and what those share, as a tree: of this machine "
        "(PCIe widths and speeds as negotiated, NVLinks; what nobody tells is unlimited), of a "
        "description file, or of a reference. The file that -o writes can be completed by hand and "
        "given to `jige plan rings`.");
    source_.declare(flags, "--file");
    flags.section("Result");
    flags.text("-o,--out FILE", out_, "write the description as JSON");
    flags.text("--svg FILE", svg_, "draw it");
    output_.declare(flags, "print the description as one JSON object");
    flags.example("jige topology");
    flags.example("jige topology --source hwloc");
    flags.example("jige topology --reference pcie-8gpu-2numa --svg box.svg -o box.json");
  }

  Status run() override {
    output_.apply();
    JIGE_TRY(const topology::Topology topology, source_.load());
    Json json = topology::description_to_json(topology.description());
    const std::string hash = topology::fingerprint(topology.description()).hash;
    if (!out_.empty()) JIGE_DO(write_file_atomic(out_, dump_json(json, 1) + "\n"));
    if (!svg_.empty()) {
      JIGE_DO(write_file_atomic(
          svg_, topology::topology_svg(topology, {.subtitle = "fingerprint " + hash})));
    }
    if (output_.json) {
      json["fingerprint"] = hash;
      print_json(json);
    } else {
      print_text(fmt::format("{}, fingerprint {}\n{}", printable(topology.name()), hash,
                             topology::topology_text(topology)));
    }
    return {};
  }

 private:
  TopologyFlags source_;
  std::string out_, svg_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_topology_command() { return std::make_unique<TopologyCommand>(); }

}  // namespace jige::cli
