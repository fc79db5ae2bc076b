// Meter of ranks of an MPI program: --mpi.
#include <sstream>

#include "cli/flags.h"
#include "cli/meter_kind.h"
#include "profile/mpi_meter.h"

namespace jige::cli {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> list;
  for (std::string word; words >> word;) list.push_back(std::move(word));
  return list;
}

class MpiKind final : public MeterKind {
 public:
  void declare(Flags& flags) override {
    flags.text("--mpi PLACES", places_,
               "ranks of an MPI program: as --shm, or [NAME=]host:HOST separated by commas");
    flags.text("--mpirun WORDS", mpirun_,
               "how MPI programs are started, with options if need be (--mpi)");
  }
  std::string_view flag() const override { return "--mpi"; }
  std::vector<std::string_view> own_flags() const override { return {"--mpirun"}; }

  Result<OpenedMeter> open(const TopologyFlags& source,
                           const MeterRequest& request) const override {
    JIGE_TRY(std::vector<profile::MpiPlace> places,
             profile::parse_mpi_places(places_, profile::usable_processors(), flag()));
    profile::MpiMeterOptions options{.launch = {.launcher = words_of(mpirun_)},
                                     .run_timeout_s = request.timeout_s};
    heed(request, options);
    JIGE_TRY(std::unique_ptr<profile::MpiMeter> meter,
             profile::MpiMeter::start(std::move(places), options));
    JIGE_TRY(topology::Description network, described(meter->description(), source));
    return opened(std::move(meter), std::move(network), flag());
  }

 private:
  std::string places_, mpirun_ = "mpirun";
};

}  // namespace

std::unique_ptr<MeterKind> make_mpi_kind() { return std::make_unique<MpiKind>(); }

}  // namespace jige::cli
