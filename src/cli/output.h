// What a command says: its result on standard output, as text or JSON, and errors.
//
//   error: models/tiny/config.json: field "hidden_size" is missing
//   {"error":{"code":"not_found","exit_code":3,"message":"…"}}        with --json, standard output
//
// Threads: one thread.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::cli {

class Flags;

// The two flags every command has.
struct OutputFlags {
  bool json = false;
  bool quiet = false;

  // Declares --json with this help, and --quiet. Quiet also silences log lines below a warning,
  // once apply() is called.
  void declare(Flags& flags, std::string_view json_help);
  void apply() const;
};

// Fails as AtomicFile::create where a file cannot be written, so that this is said before the work
// and not behind it. Changes nothing; empty names are no files.
Status check_output_files(std::initializer_list<std::string> paths);

// Takes a terminal back to its first column and line and clears it, for a view that is drawn anew.
inline constexpr const char* kHomeAndClear = "\x1b[H\x1b[J";

// Writes to standard output without delay; on a terminal in place of a progress bar. For reports
// and tables: control characters in them, but line feeds and tabs, are shown as escapes.
void print_text(std::string_view text);
// The same for what has to arrive byte by byte, such as the text of a model or JSON.
void print_exact(std::string_view text);
// One line of JSON on standard output.
void print_json(const Json& json);
// Writes to standard error as it is, for people who may be there: a terminal that is gone, or a
// file without room, ends nothing. From any thread.
void print_message(std::string_view text);

// Reports an error as the header shows, control characters as escapes and further lines set in.
void print_error(const Error& error, bool json);

// Whether colours are left to us: not where NO_COLOR is set and not empty, nor on a dumb terminal.
bool allows_color();

// For commands whose work is not what they print: from now on whoever read standard output or error
// may go away, which else ends the process by SIGPIPE, and is no failure.
void outlive_readers();

// Fails with kIo when something printed did not reach standard output.
Status flush_output();

}  // namespace jige::cli
