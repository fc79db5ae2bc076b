// Meter of hosts over TCP: --hosts, by the agents on them.
#include <algorithm>

#include "cli/flags.h"
#include "cli/meter_kind.h"
#include "profile/tcp_meter.h"

namespace jige::cli {
namespace {

class HostsKind final : public MeterKind {
 public:
  void declare(Flags& flags) override {
    flags.text("--hosts LIST", hosts_,
               "hosts on which `jige profile agent` runs: NAME=ADDRESS[:PORT], separated by "
               "commas, or a file with one a line; without --hosts, --shm, --mpi and --gpus, rates "
               "are simulated");
    flags.text("--token WORD", token_, "what the agents were started with (--hosts)");
    flags.text("--congestion NAME", congestion_,
               "TCP's congestion control; auto: bbr where every host has it; system: not set "
               "(--hosts)");
  }
  std::string_view flag() const override { return "--hosts"; }
  std::vector<std::string_view> own_flags() const override { return {"--token", "--congestion"}; }

  Result<OpenedMeter> open(const TopologyFlags& source,
                           const MeterRequest& request) const override {
    const bool listed = hosts_.find('=') != std::string::npos;
    JIGE_TRY(std::vector<profile::Host> hosts,
             listed ? profile::parse_hosts(hosts_, "--hosts") : profile::load_hosts(hosts_));
    profile::TcpMeterOptions options{.agent = {.token = token_, .timeout_s = request.timeout_s},
                                     .congestion = congestion_};
    options.run_timeout_s = std::max(options.run_timeout_s, request.timeout_s);
    heed(request, options);
    JIGE_TRY(std::unique_ptr<profile::TcpMeter> meter,
             profile::TcpMeter::connect(std::move(hosts), options));
    JIGE_TRY(topology::Description network, described(meter->description(), source));
    return opened(std::move(meter), std::move(network), flag());
  }

 private:
  std::string hosts_, token_, congestion_ = "auto";
};

}  // namespace

std::unique_ptr<MeterKind> make_hosts_kind() { return std::make_unique<HostsKind>(); }

}  // namespace jige::cli
