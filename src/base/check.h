// Checks for what cannot happen: a failed one is a bug in Jige and ends the process with its place.
//
// JIGE_CHECK stays on in release builds. JIGE_DCHECK is for hot loops and is on in the dev presets.
// Neither may be reachable from a file, a flag or a socket: that is what Result is for.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace jige {

// Prints "check failed" with the place and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace jige

// JIGE_CHECK(condition, "format {}", values…)
#define JIGE_CHECK(condition, ...)                                                      \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::jige::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

#ifdef JIGE_DCHECK_ENABLED
#define JIGE_DCHECK(condition, ...) JIGE_CHECK(condition, __VA_ARGS__)
#else
#define JIGE_DCHECK(condition, ...) \
  do {                              \
  } while (false)
#endif
