// Checks of README.md and docs/: commands and flags that they show exist, every command is named,
// and links within the tree lead somewhere.

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "source_tree.h"

namespace jige {
namespace {

namespace fs = std::filesystem;

// The lines of a document by its path, relative to the root.
const std::map<std::string, std::vector<std::string>>& documents() {
  static const auto all = [] {
    const fs::path root = JIGE_SOURCE_DIR;
    std::vector<fs::path> paths = {root / "README.md", root / "CONTRIBUTING.md"};
    for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
      if (entry.path().extension() == ".md") paths.push_back(entry.path());
    }
    std::map<std::string, std::vector<std::string>> found;
    for (const fs::path& path : paths) {
      std::ifstream file(path);
      std::vector<std::string>& lines = found[fs::relative(path, root).string()];
      for (std::string line; std::getline(file, line);) lines.push_back(line);
    }
    return found;
  }();
  return all;
}

// Every text that the first group of a pattern matches.
std::set<std::string> matches(const std::vector<std::string>& lines, const std::regex& pattern) {
  std::set<std::string> found;
  for (const std::string& line : lines) {
    for (std::sregex_iterator at(line.begin(), line.end(), pattern), end; at != end; ++at) {
      found.insert((*at)[1]);
    }
  }
  return found;
}

// What "#…" behind a document's name may lead to: headings as GitHub names them, and marks.
std::set<std::string> anchors(const std::vector<std::string>& lines) {
  static const std::regex kMark(R"re(<a id="([^"]*)">)re");
  std::set<std::string> found = matches(lines, kMark);
  for (const std::string& line : lines) {
    const size_t title = line.find_first_not_of('#');
    if (title == 0 || title == std::string::npos || line[title] != ' ') continue;
    std::string anchor;
    for (const char c : line.substr(title + 1)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x80 || std::isalnum(byte) || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(byte));
      }
      if (c == ' ') anchor += '-';
    }
    found.insert(anchor);
  }
  return found;
}

TEST(Documents, LinksLeadSomewhere) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  const fs::path root = JIGE_SOURCE_DIR;
  for (const auto& [path, lines] : documents()) {
    for (const std::string& link : matches(lines, kLink)) {
      if (link.find("://") != std::string::npos) continue;
      const std::string file = link.substr(0, link.find('#'));
      const fs::path target =
          file.empty() ? fs::path(path) : (fs::path(path).parent_path() / file).lexically_normal();
      EXPECT_TRUE(fs::exists(root / target)) << path << ": there is no " << link;
      const auto document = documents().find(target.string());
      if (link.size() == file.size() || document == documents().end()) continue;
      EXPECT_TRUE(anchors(document->second).contains(link.substr(file.size() + 1)))
          << path << ": " << target << " has no place " << link.substr(file.size());
    }
  }
}

// The lines of the sources of the command line.
std::vector<std::string> command_line_sources() {
  std::vector<std::string> lines;
  for (const SourceFile& file : sources()) {
    if (file.folder == "cli") lines.insert(lines.end(), file.lines.begin(), file.lines.end());
  }
  return lines;
}

TEST(Documents, ReadmeNamesEveryCommand) {
  static const std::regex kEntry(R"re(^      \{"([a-z -]+)", )re");
  static const std::regex kCode("`([^`]+)`");
  const std::set<std::string> named = matches(documents().at("README.md"), kCode);
  for (const SourceFile& file : sources()) {
    if (file.path != "src/cli/command_list.cc") continue;
    for (const std::string& line : file.lines) {
      std::smatch entry;
      if (!std::regex_search(line, entry, kEntry) || line.find("kHidden") != std::string::npos) {
        continue;
      }
      // Of commands of two words that follow one another, later ones go by the second alone.
      const std::string command = entry[1], last = command.substr(command.rfind(' ') + 1);
      EXPECT_TRUE(named.contains(command) || (last != command && named.contains(last)))
          << "README.md does not name `" << command << "`";
    }
  }
}

TEST(Documents, FlagsOfCommandsThatAreShownExist) {
  static const std::regex kDeclared("(--[a-z][a-z0-9-]*)");
  static const std::regex kFlag(" (--[a-z][a-z0-9-]*)");
  static const std::regex kQuoted(R"("[^"]*")");  // words for another program
  const std::set<std::string> declared = matches(command_line_sources(), kDeclared);
  size_t shown = 0;
  for (const auto& [path, lines] : documents()) {
    for (const std::string& line : lines) {
      if (!line.starts_with("jige ")) continue;
      for (const std::string& flag : matches({std::regex_replace(line, kQuoted, "")}, kFlag)) {
        ++shown;
        EXPECT_TRUE(declared.contains(flag) || flag == "--help")
            << path << ": no command has " << flag << ": " << line;
      }
    }
  }
  EXPECT_GT(shown, 50u);
}

}  // namespace
}  // namespace jige
