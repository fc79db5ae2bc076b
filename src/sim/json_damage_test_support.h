// Damage to the text of a JSON file, as a seeded mutator makes it. Threads: values.
#pragma once

#include <string>

#include "base/rng.h"

namespace jige::sim {

// One to three bytes changed, runs left out or written twice.
inline std::string damaged_json(std::string text, Rng& rng) {
  for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
    const size_t at = rng.below(text.size());
    switch (rng.below(3)) {
      case 0:
        text[at] = "{}[]\",:-0159eEntf"[rng.below(17)];
        break;
      case 1:
        text.erase(at, 1 + rng.below(12));
        break;
      default:
        text.insert(at, text.substr(rng.below(text.size()), 1 + rng.below(12)));
    }
  }
  return text;
}

}  // namespace jige::sim
