// Errors as values: Result<T>, Status, and the one list of error codes.
//
// Expected failures (files, parsing, limits, memory, network) travel as Result<T>; programmer
// errors abort through base/check.h. Codes map to process exit codes here and nowhere else.
//
//   Result<Config> load(const std::string& path) {
//     JIGE_TRY(const std::string text, read_file(path));
//     if (text.empty()) return fail(Code::kCorrupt, "{}: is empty", path);
//     JIGE_DO(validate(text));
//     return Config{...};
//   }
//
// A message names the file or field, the offending value and, where there is one, the remedy.
// Threads: values; no shared state.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace jige {

enum class Code {
  kInternal,         // a bug or an impossible state reported as a value
  kInvalidArgument,  // a flag, field or request the user can correct
  kNotFound,         // a file, tensor or name that is not there
  kCorrupt,          // data that contradicts itself or its format
  kUnsupported,      // valid, but not something Jige can do
  kExhausted,        // memory, disk or a configured limit is used up
  kIo,               // the operating system failed a read or a write
  kUnavailable,      // a peer or device is not there now; trying again may help
  kCancelled,        // the user or the caller gave up
};

// The name of a code as logs and JSON show it, for example "not_found".
std::string_view code_name(Code code);

// The process exit code of an error: 1 internal, 2 invalid argument, 3 not found, 4 corrupt,
// 5 unsupported, 6 exhausted, 7 io, 8 unavailable, 130 cancelled.
int exit_code(Code code);

struct [[nodiscard]] Error {
  Code code;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Makes the error half of a Result: return fail(Code::kIo, "{}: {}", path, reason);
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// Prefixes an error with what was being done: return with_context(std::move(error), "loading {}",
// p);
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> with_context(Error error, fmt::format_string<Args...> format,
                                                 Args&&... args) {
  error.message = fmt::format(format, std::forward<Args>(args)...) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace jige

#define JIGE_CONCAT_INNER(a, b) a##b
#define JIGE_CONCAT(a, b) JIGE_CONCAT_INNER(a, b)

// JIGE_TRY(declaration, expression): declares from the value or returns the error.
#define JIGE_TRY(declaration, ...) \
  JIGE_TRY_INNER(JIGE_CONCAT(jige_result_, __COUNTER__), declaration, __VA_ARGS__)
#define JIGE_TRY_INNER(result, declaration, ...)                                  \
  auto result = (__VA_ARGS__);                                                    \
  if (!result) return ::tl::unexpected<::jige::Error>(std::move(result.error())); \
  declaration = std::move(*result)

// JIGE_DO(expression): returns the error of a Status, or goes on.
#define JIGE_DO(...)                                                          \
  do {                                                                        \
    if (auto jige_status = (__VA_ARGS__); !jige_status)                       \
      return ::tl::unexpected<::jige::Error>(std::move(jige_status.error())); \
  } while (false)
