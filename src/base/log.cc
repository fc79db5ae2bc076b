#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/printable.h"
#include "base/progress.h"

namespace jige {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const bool plain = no_color != nullptr && *no_color != '\0';
    auto made = spdlog::stderr_color_mt(
        "jige", plain ? spdlog::color_mode::never : spdlog::color_mode::automatic);
    made->set_pattern("%^%l%$: %v");
    const char* wanted = std::getenv("JIGE_LOG");
    const auto level = spdlog::level::from_str(wanted ? wanted : "info");
    // The library answers "off" for what it does not know.
    const bool known = level != spdlog::level::off || std::string_view(wanted) == "off";
    made->set_level(known ? level : spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  clear_progress_line();
  logger().log(to_spdlog(level), printable_lines(message, "  "));
}

}  // namespace jige
