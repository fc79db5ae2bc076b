// Meter of processes of this machine, through shared memory: --shm.
#include "cli/flags.h"
#include "cli/meter_kind.h"
#include "profile/shm_meter.h"

namespace jige::cli {
namespace {

class ShmKind final : public MeterKind {
 public:
  void declare(Flags& flags) override {
    flags.text("--shm PLACES", places_,
               "processes of this machine, through shared memory: how many, or [NAME=]cpuN and "
               "[NAME=]numaN separated by commas");
  }
  std::string_view flag() const override { return "--shm"; }

  Result<OpenedMeter> open(const TopologyFlags& source,
                           const MeterRequest& request) const override {
    JIGE_TRY(std::vector<profile::LocalPlace> places,
             profile::parse_places(places_, profile::usable_processors(), flag()));
    profile::ShmMeterOptions options{.run_timeout_s = request.timeout_s};
    heed(request, options);
    JIGE_TRY(std::unique_ptr<profile::ShmMeter> meter,
             profile::ShmMeter::start(std::move(places), options));
    JIGE_TRY(topology::Description machine, described(meter->description(), source));
    return opened(std::move(meter), std::move(machine), flag());
  }

 private:
  std::string places_;
};

}  // namespace

std::unique_ptr<MeterKind> make_shm_kind() { return std::make_unique<ShmKind>(); }

}  // namespace jige::cli
