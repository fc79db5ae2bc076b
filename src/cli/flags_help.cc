#include "cli/flags_help.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace jige::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kHelpColumn = 28;

// "-p, --prompt TEXT" or "    --seed N"; "FOLDER" for arguments.
std::string left_half(const HelpFlag& flag) {
  std::string text = flag.names;
  if (!flag.positional) {
    const size_t comma = text.find(',');
    text = comma == std::string::npos ? "    " + text : text.insert(comma + 1, " ");
    if (!flag.metavar.empty()) text += " " + flag.metavar;
  }
  if (flag.several) text += "...";
  return text;
}

std::string flag_lines(const HelpFlag& flag) {
  std::string line = "  " + left_half(flag);
  const size_t width = column_count(line);
  line += width + 2 > kHelpColumn ? "\n" + std::string(kHelpColumn, ' ')
                                  : std::string(kHelpColumn - width, ' ');
  std::string help = flag.help;
  if (!flag.shown_default.empty()) help += fmt::format(" [{}]", flag.shown_default);
  return line + wrap_text(help, kHelpColumn, kColumns) + "\n";
}

}  // namespace

std::string wrap_text(std::string_view text, size_t indent, size_t columns) {
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const bool first = out.empty() || out.back() == '\n';
    const size_t needed = column_count(word) + (first ? 0 : 1);
    if (!first && column + needed > columns) {
      out += "\n" + std::string(indent, ' ');
      column = indent + column_count(word);
      out += word;
    } else {
      if (!out.empty() && column > indent) out += ' ';
      out += word;
      column += needed;
    }
    if (end < text.size() && text[end] == '\n') {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    begin = end + 1;
  }
  return out;
}

void HelpText::section(std::string title) { sections_.push_back({std::move(title), {}}); }

void HelpText::add(HelpFlag flag) {
  if (flag.positional) {
    arguments_.push_back(std::move(flag));
  } else {
    sections_.back().flags.push_back(std::move(flag));
  }
}

std::string HelpText::usage() const {
  std::string line = "jige " + command;
  for (const HelpFlag& argument : arguments_) {
    const std::string name = argument.names + (argument.several ? "..." : "");
    line += argument.optional ? fmt::format(" [{}]", name) : " " + name;
  }
  return line + " [options]";
}

std::string HelpText::usage_and_example() const {
  return examples.empty() ? usage() : usage() + ", such as: " + examples.front();
}

std::string HelpText::render() const {
  std::string text = wrap_text(about, 0, kColumns) + "\n\nUsage: " + usage() + "\n";
  if (!arguments_.empty()) {
    text += "\nArguments:\n";
    for (const HelpFlag& argument : arguments_) text += flag_lines(argument);
  }
  for (const Section& section : sections_) {
    if (section.flags.empty()) continue;
    text += "\n" + section.title + ":\n";
    for (const HelpFlag& flag : section.flags) text += flag_lines(flag);
  }
  if (!examples.empty()) text += "\nExamples:\n";
  for (const std::string& line : examples) text += "  " + line + "\n";
  return text;
}

}  // namespace jige::cli
