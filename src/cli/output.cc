#include "cli/output.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "cli/flags.h"

namespace jige::cli {
namespace {

int output_errno = 0;  // of the first write to standard output that failed
bool needs_reader = true;

void note_failed_write() {
  if (output_errno == 0 && (needs_reader || errno != EPIPE)) output_errno = errno;
}

}  // namespace

void OutputFlags::declare(Flags& flags, std::string_view json_help) {
  flags.section("Output");
  flags.toggle("--json", json, std::string(json_help));
  flags.toggle("-q,--quiet", quiet, "no progress and no notes, only results and errors");
}

void OutputFlags::apply() const {
  if (quiet && log_enabled(LogLevel::kInfo)) set_log_level(LogLevel::kWarn);  // never louder
}

Status check_output_files(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    // Who reads from a pipe would see its end here.
    const bool special = std::filesystem::exists(status) &&
                         !std::filesystem::is_regular_file(status) &&
                         !std::filesystem::is_directory(status);
    if (path.empty() || special) continue;
    JIGE_TRY(const AtomicFile file, AtomicFile::create(path));
  }
  return {};
}

void print_text(std::string_view text) { print_exact(printable_lines(text)); }

void print_exact(std::string_view text) {
  // A bar on the same terminal would stand before it in the line.
  if (isatty(STDOUT_FILENO) == 1) clear_progress_line();
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) note_failed_write();
}

void print_json(const Json& json) { print_exact(dump_json(json) + "\n"); }

void print_message(std::string_view text) {
  [[maybe_unused]] const size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
}

void print_error(const Error& error, bool json) {
  const char* title = error.code == Code::kCancelled ? "stopped" : "error";
  std::fprintf(stderr, "%s: %s\n", title, printable_lines(error.message, "  ").c_str());
  if (json) {
    print_json(Json{{"error",
                     {{"code", code_name(error.code)},
                      {"exit_code", exit_code(error.code)},
                      {"message", error.message}}}});
  }
}

bool allows_color() {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return !dumb && (refused == nullptr || *refused == '\0');
}

void outlive_readers() {
  signal(SIGPIPE, SIG_IGN);
  needs_reader = false;
}

Status flush_output() {
  if (std::fflush(stdout) != 0) note_failed_write();
  if (output_errno == 0) return {};
  const bool full = output_errno == ENOSPC || output_errno == EDQUOT || output_errno == EFBIG;
  return fail(full ? Code::kExhausted : Code::kIo,
              "standard output: {}; the result is not complete", std::strerror(output_errno));
}

}  // namespace jige::cli
