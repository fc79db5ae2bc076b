// A subcommand of `jige`: its flags and what it does. One file per command; command_list.cc names
// them all.
//
// Invariants: declare() is called once, before run(); the targets of its flags are members, so they
// hold the values when run() starts.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"

namespace jige::cli {

class Flags;

class Command {
 public:
  virtual ~Command() = default;
  virtual void declare(Flags& flags) = 0;
  virtual Status run() = 0;
};

// Where a command stands in `jige --help`.
enum class CommandGroup { kUse, kTrain, kLook, kHidden };

struct CommandEntry {
  std::string_view name;  // one word, or two such as "tokenizer train"
  std::string_view summary;
  CommandGroup group;
  std::unique_ptr<Command> (*make)();
};

// Every command, in the order of the help text.
std::span<const CommandEntry> command_list();

}  // namespace jige::cli
