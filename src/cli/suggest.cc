#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace jige::cli {

int edit_distance(std::string_view typed, std::string_view known) {
  const size_t columns = known.size() + 1;
  std::vector<int> before(columns), last(columns), now(columns);
  for (size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= typed.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int replaced = last[j - 1] + (typed[i - 1] == known[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
      const bool swapped =
          i > 1 && j > 1 && typed[i - 1] == known[j - 2] && typed[i - 2] == known[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[columns - 1];
}

std::string nearest_name(std::string_view typed, std::span<const std::string> names) {
  std::string best;
  int best_distance = 1 << 20;
  for (const std::string& name : names) {
    // A beginning is a mistake of one step however long the rest is, and more behind a name, as in
    // "--output" for "--out", one of two.
    const bool beginning = typed.size() >= 3 && name.starts_with(typed);
    const bool longer = name.size() >= 5 && typed.starts_with(name);
    const int steps = beginning ? 1 : edit_distance(typed, name);
    const int distance = longer ? std::min(steps, 2) : steps;
    const int near = std::max(1, static_cast<int>(std::max(name.size(), typed.size()) / 3));
    if (distance <= near && distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

std::string suggestion(std::string_view typed, std::span<const std::string> names) {
  const std::string name = nearest_name(typed, names);
  return name.empty() ? "" : fmt::format("; did you mean {}?", name);
}

}  // namespace jige::cli
