// A list of places as a flag has it: entries separated by commas, each of them once.
//
//   JIGE_TRY(std::vector<LocalPlace> places,
//            parse_place_list<LocalPlace>("cpu0,b=cpu8", "--shm", {parse, same, remedy}));
//
// Invariants: 2 to 64 places, no two the same. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/split.h"

namespace jige::profile {

// Fails with kInvalidArgument for fewer than 2 or more than 64, naming `where`.
Status check_place_count(int64_t count, std::string_view where);

template <typename Place>
struct PlaceListRules {
  std::function<Result<Place>(std::string_view entry)> parse;
  std::function<bool(const Place&, const Place&)> same;
  std::string_view remedy;  // for what is there twice
};

// Fails with kInvalidArgument, naming `where` and the entry.
template <typename Place>
Result<std::vector<Place>> parse_place_list(std::string_view text, std::string_view where,
                                            const PlaceListRules<Place>& rules) {
  std::vector<Place> places;
  for (const std::string_view entry : split_at(text, ',')) {
    JIGE_TRY(Place place, rules.parse(entry));
    if (std::ranges::any_of(places, [&](const Place& p) { return rules.same(p, place); })) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is there twice; {}", where, entry,
                  rules.remedy);
    }
    places.push_back(std::move(place));
  }
  JIGE_DO(check_place_count(static_cast<int64_t>(places.size()), where));
  return places;
}

}  // namespace jige::profile
