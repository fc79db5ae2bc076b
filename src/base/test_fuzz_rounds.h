// How much seeded mutators of tests do: JIGE_FUZZ_ROUNDS multiplies the rounds of all of them, for
// a long run under the sanitizers. JIGE_FUZZ_SEED gives other cases where a test asks for its seed.
//
// Threads: pure functions of the environment.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace jige {

inline uint64_t fuzz_number(const char* name, uint64_t usual) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : usual;
}

inline uint64_t fuzz_seed(uint64_t usual) { return fuzz_number("JIGE_FUZZ_SEED", usual); }

inline uint64_t fuzz_rounds(uint64_t usual) { return usual * fuzz_number("JIGE_FUZZ_ROUNDS", 1); }

}  // namespace jige
