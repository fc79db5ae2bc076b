#include "cli/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/flags_help.h"
#include "cli/output.h"
#include "cli/suggest.h"

namespace jige::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 done, 1 a fault of Jige, 2 a flag or request to correct, 3 something is not "
    "there, 4 damaged data, 5 not supported, 6 memory, disk or a limit is used up, 7 reading or "
    "writing failed, 8 a device or peer is not there now, 130 stopped by the user.";

std::string group_lines(CommandGroup group, std::string_view title) {
  std::string text = fmt::format("\n{}:\n", title);
  for (const CommandEntry& entry : command_list()) {
    if (entry.group != group) continue;
    text += fmt::format("  {:<23}{}\n", entry.name, wrap_text(entry.summary, 25, 80));
  }
  return text;
}

std::string general_help() {
  return "Jige trains language models and runs them, with ordinary Hugging Face model\n"
         "folders going in and out.\n\nUsage: jige COMMAND [options]\n" +
         group_lines(CommandGroup::kTrain, "Make a model") +
         group_lines(CommandGroup::kUse, "Use a model") +
         group_lines(CommandGroup::kLook, "Look around") +
         "\nExamples:\n"
         "  jige train --data stories.txt --size tiny --out runs/first\n"
         "  jige chat runs/first\n"
         "\n`jige COMMAND --help` explains a command.\n\n" +
         wrap_text(kExitCodes, 0, 80) + "\n";
}

// The entry whose one or two words begin `words`; the longer name wins.
const CommandEntry* find_command(const std::vector<std::string>& words, size_t& word_count) {
  const CommandEntry* found = nullptr;
  for (const CommandEntry& entry : command_list()) {
    const size_t space = entry.name.find(' ');
    const bool two = space != std::string_view::npos;
    if (words[0] != entry.name.substr(0, space)) continue;
    if (two && (words.size() < 2 || words[1] != entry.name.substr(space + 1))) continue;
    if (found && !two) continue;
    found = &entry;
    word_count = two ? 2 : 1;
  }
  return found;
}

// The commands of two words that begin with `word`, hidden ones left out.
std::vector<std::string> family_of(const std::string& word) {
  std::vector<std::string> found;
  for (const CommandEntry& entry : command_list()) {
    if (entry.group == CommandGroup::kHidden || !entry.name.starts_with(word + " ")) continue;
    found.emplace_back(entry.name);
  }
  return found;
}

std::string family_help(const std::string& word) {
  std::string text = fmt::format("Usage: jige {} WORD [options]\n\n", word);
  for (const CommandEntry& entry : command_list()) {
    if (entry.group == CommandGroup::kHidden || !entry.name.starts_with(word + " ")) continue;
    text += fmt::format("  {:<23}{}\n", entry.name, wrap_text(entry.summary, 25, 80));
  }
  return text + fmt::format("\n`jige {} WORD --help` explains one.\n", word);
}

// REQUIRES: no command has these words.
Error unknown_command(const std::vector<std::string>& words) {
  const std::vector<std::string> family = family_of(words[0]);
  const std::string list = fmt::format("`jige {}`", fmt::join(family, "`, `jige "));
  if (!family.empty() && (words.size() < 2 || words[1].starts_with("-"))) {
    return {Code::kInvalidArgument, fmt::format("jige {} needs one more word: {}", words[0], list)};
  }
  if (!family.empty()) {
    const std::string typed = words[0] + " " + words[1];
    return {Code::kInvalidArgument, fmt::format("jige has no command \"{}\", only {}{}", typed,
                                                list, suggestion(typed, family))};
  }
  std::vector<std::string> names;
  for (const CommandEntry& entry : command_list()) {
    if (entry.group != CommandGroup::kHidden) names.emplace_back(entry.name);
  }
  return {Code::kInvalidArgument,
          fmt::format("jige has no command \"{}\"{}; `jige --help` lists them", words[0],
                      suggestion(words[0], names))};
}

Status run_words(std::vector<std::string> words) {
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    if (!words.empty()) words.push_back("--help");
  }
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    print_text(general_help());
    return {};
  }
  if (words[0] == "--version") words[0] = "version";
  size_t word_count = 0;
  const CommandEntry* entry = find_command(words, word_count);
  if (!entry && words.size() > 1 && (words[1] == "--help" || words[1] == "-h") &&
      !family_of(words[0]).empty()) {
    print_text(family_help(words[0]));
    return {};
  }
  if (!entry) return tl::unexpected<Error>(unknown_command(words));
  words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(word_count));

  Flags flags{std::string(entry->name)};
  const std::unique_ptr<Command> command = entry->make();
  command->declare(flags);
  JIGE_DO(flags.parse(words));
  if (flags.help_asked()) {
    print_text(flags.help());
    return {};
  }
  return command->run();
}

// The last guard: what a library threw past the file that should have caught it.
Status run_guarded(std::vector<std::string> words) {
  try {
    return run_words(std::move(words));
  } catch (const std::bad_alloc&) {
    return fail(Code::kExhausted, "this machine has no more memory for the process");
  } catch (const std::exception& error) {
    return fail(Code::kInternal, "unexpected: {}; please report it with the command line",
                error.what());
  }
}

// A stream that the caller closed must not become the number of a file: messages would go into it.
// Reading and writing these fail as on the closed ones.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one: those below are open.
    [[maybe_unused]] const int held = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int run(int argc, char** argv) {
  hold_standard_streams();
  // Where files may not grow any more (ulimit -f), writing is to fail, not to end the process with
  // halves of files behind it.
  signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const bool json = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--json" || word == "--json=true";
  });
  Status status = run_guarded(words);
  if (Status flushed = flush_output(); status && !flushed) status = flushed;
  if (status) return 0;
  print_error(status.error(), json);
  return exit_code(status.error().code);
}

}  // namespace jige::cli
