#include "comm/place.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace jige::comm {
namespace {

struct Launcher {
  const char* rank;
  const char* world;
};
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};

Result<int> parse_number(const char* name, const char* text) {
  const std::string_view view = text;
  int value = -1;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 0) {
    return fail(Code::kInvalidArgument, "{}=\"{}\" is not a number of ranks", name, view);
  }
  return value;
}

}  // namespace

Result<std::optional<Place>> place_from_environment() {
  for (const Launcher& launcher : kLaunchers) {
    const char* rank = std::getenv(launcher.rank);
    const char* world = std::getenv(launcher.world);
    if (rank == nullptr && world == nullptr) continue;
    // A shell inside an allocation of Slurm has the number of tasks without being one of them.
    if (rank == nullptr) continue;
    if (world == nullptr) {
      return fail(Code::kInvalidArgument, "{} is set without {}", launcher.rank, launcher.world);
    }
    Place place = {.source = launcher.rank};
    JIGE_TRY(place.rank, parse_number(launcher.rank, rank));
    JIGE_TRY(place.world, parse_number(launcher.world, world));
    JIGE_DO(check_place(place));
    return place;
  }
  return std::optional<Place>();
}

Status check_place(const Place& place) {
  if (place.world < 1 || place.world > kWorldMax || place.rank < 0 || place.rank >= place.world) {
    return fail(Code::kInvalidArgument,
                "rank {} of {} ({}): ranks go from 0 to one less than the world, which has 1 to {}",
                place.rank, place.world, place.source, kWorldMax);
  }
  return {};
}

}  // namespace jige::comm
