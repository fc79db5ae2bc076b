// Flags of a command: declared with their target, range and help in one line each, read by CLI11.
//
//   flags.about("Continues a text.");
//   flags.text("FOLDER", folder_, "model folder");
//   flags.section("Sampling");
//   flags.number("--temperature T", temperature_, {.min = 0, .max = 10}, "0 takes the likeliest");
//   flags.toggle("--json", json_, "print JSON");
//
// A specification is "-x,--long METAVAR" for a flag, "NAME" for a required positional argument,
// "[NAME]" for an optional one; "..." at its end takes several. The target holds the default before
// parsing, and help shows it. A toggle may have a value, "--json=true" or "--json=false", for a
// script that has it in a variable. Errors name the flag, the value and what is allowed. Empty
// values are refused but where METAVAR is TEXT.
//
// Invariants: targets outlive the Flags. No exception of CLI11 leaves flags.cc.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::cli {

struct IntRange {
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
  std::string reason = {};  // where max comes from, for messages
};

struct NumberRange {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is refused
  bool below_max = false;  // max itself is refused
};

class Flags {
 public:
  // `command` is the words after "jige", for messages and help.
  explicit Flags(std::string command);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // What the command does, for the top of its help.
  void about(std::string text);
  // One line a newcomer can copy, shown at the end of the help.
  void example(std::string line);
  // Following flags stand under this title in the help.
  void section(std::string title);

  void toggle(std::string_view spec, bool& target, std::string help);
  void text(std::string_view spec, std::string& target, std::string help);
  void text(std::string_view spec, std::optional<std::string>& target, std::string help);
  void texts(std::string_view spec, std::vector<std::string>& target, std::string help);
  void integer(std::string_view spec, int64_t& target, IntRange range, std::string help);
  void integer(std::string_view spec, std::optional<int64_t>& target, IntRange range,
               std::string help);
  void number(std::string_view spec, double& target, NumberRange range, std::string help);
  void number(std::string_view spec, std::optional<double>& target, NumberRange range,
              std::string help);
  // "4096", "64K", "1.5GiB".
  void bytes(std::string_view spec, int64_t& target, std::string help);
  void choice(std::string_view spec, std::string& target, std::vector<std::string> choices,
              std::string help);

  // Whether the user gave this flag ("--threads") or argument ("FOLDER"). A toggle that is given as
  // false is as good as none.
  bool given(std::string_view name) const;
  // Fails with kInvalidArgument, "NAME WHY", where the user gave one of these, which would have no
  // effect beside what else was given.
  Status refuse(std::initializer_list<std::string_view> names, std::string_view why) const;

  // Reads the words after the command. Fails with kInvalidArgument. `help_asked` says whether the
  // user wants the help text instead.
  Status parse(const std::vector<std::string>& words);
  bool help_asked() const;

  // The whole help text, wrapped to a terminal of 80 columns.
  std::string help() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jige::cli
