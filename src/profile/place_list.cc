#include "profile/place_list.h"

namespace jige::profile {
namespace {

constexpr int64_t kPlacesMin = 2, kPlacesMax = 64;

}  // namespace

Status check_place_count(int64_t count, std::string_view where) {
  if (count >= kPlacesMin && count <= kPlacesMax) return {};
  return fail(Code::kInvalidArgument, "{}: places must be {} to {}, not {}", where, kPlacesMin,
              kPlacesMax, count);
}

}  // namespace jige::profile
