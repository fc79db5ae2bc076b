// A number and what it counts, as English has it: counted(1, "device") is "1 device", counted(2,
// "batch") is "2 batches".
//
// For nouns whose plural ends in s, or behind "ch" in es. Threads: pure.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace jige {

inline std::string counted(int64_t count, std::string_view noun) {
  const char* plural = noun.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : plural);
}

}  // namespace jige
