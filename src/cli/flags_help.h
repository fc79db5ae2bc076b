// The help text of a command: what it does, usage, flags by section, examples, in 80 columns.
//
// Threads: values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jige::cli {

struct HelpFlag {
  std::string names;  // "-p,--prompt" or "FOLDER"
  std::string metavar = {};
  std::string help = {};
  std::string shown_default = {};  // empty: none shown
  bool positional = false;
  bool optional = false;
  bool several = false;
};

struct HelpText {
  std::string command;  // the words after "jige"
  std::string about;
  std::vector<std::string> examples;

  // Following flags stand under this title.
  void section(std::string title);
  void add(HelpFlag flag);

  // "jige generate FOLDER [options]".
  std::string usage() const;
  // The same with the first example behind it, for errors.
  std::string usage_and_example() const;
  std::string render() const;

 private:
  struct Section {
    std::string title;
    std::vector<HelpFlag> flags;
  };
  std::vector<Section> sections_ = {{"Options", {}}};
  std::vector<HelpFlag> arguments_;
};

// `text` broken at spaces into lines of at most `columns` characters; every line but the first is
// indented by `indent` spaces, and the first is taken to begin at that column.
std::string wrap_text(std::string_view text, size_t indent, size_t columns);

}  // namespace jige::cli
