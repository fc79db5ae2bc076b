#include "topology/slurm_topology.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <utility>

#include "base/ascii.h"
#include "base/file.h"

namespace jige::topology {
namespace {

constexpr size_t kSlurmFileBytesMax = 16 << 20;
constexpr size_t kNamesMax = 4096;

// Cuts at commas outside of brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > begin) parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else {
      depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    }
  }
  return parts;
}

// "3" or "003-012", with as many digits as the first number has.
bool expand_range(std::string_view range, std::vector<std::string>& numbers) {
  const size_t dash = std::min(range.find('-'), range.size());
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash < range.size() ? range.substr(dash + 1) : first;
  uint32_t from = 0, to = 0;
  for (const auto& [text, value] : {std::pair(first, &from), std::pair(last, &to)}) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error != std::errc() || end != text.data() + text.size()) return false;
  }
  if (to < from || to - from >= kNamesMax || first.size() > 9) return false;
  for (uint32_t n = from; n <= to; ++n) {
    numbers.push_back(fmt::format("{:0{}}", n, first.size()));
  }
  return true;
}

struct Line {
  std::map<std::string, std::string> fields;  // by keyword in small letters
  std::string where;
};

Result<std::vector<Line>> read_lines(std::string_view text, std::string_view where) {
  std::vector<Line> lines;
  std::string joined;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    line = line.substr(0, line.find('#'));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) {
      line.remove_suffix(1);
    }
    const bool goes_on = line.ends_with('\\') && !text.empty();
    joined += goes_on ? line.substr(0, line.size() - 1) : line;
    if (goes_on) {
      joined += ' ';
      continue;
    }
    Line result{.fields = {}, .where = fmt::format("{}:{}", where, number)};
    for (size_t at = 0; (at = joined.find_first_not_of(" \t\r", at)) != std::string::npos;) {
      const size_t stop = std::min(joined.find_first_of(" \t\r", at), joined.size());
      const std::string word = joined.substr(at, stop - at);
      const size_t equals = word.find('=');
      if (equals == std::string::npos || equals == 0) {
        return fail(Code::kInvalidArgument, "{}: \"{}\" is no KEYWORD=VALUE", result.where, word);
      }
      const std::string keyword = lower_ascii(word.substr(0, equals));
      if (!result.fields.emplace(keyword, word.substr(equals + 1)).second) {
        return fail(Code::kInvalidArgument, "{}: \"{}\" is given twice", result.where, keyword);
      }
      at = stop;
    }
    joined.clear();
    if (!result.fields.empty()) lines.push_back(std::move(result));
  }
  return lines;
}

Status check_line(const Line& line) {
  constexpr std::string_view kKnown[] = {"switchname", "nodes", "switches", "linkspeed"};
  for (const auto& [keyword, value] : line.fields) {
    if (std::ranges::find(kKnown, keyword) == std::end(kKnown)) {
      return fail(Code::kInvalidArgument,
                  "{}: keyword \"{}\" is not one of SwitchName, Nodes, Switches, LinkSpeed",
                  line.where, keyword);
    }
  }
  if (!line.fields.contains("switchname")) {
    return fail(Code::kInvalidArgument, "{}: SwitchName is missing", line.where);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (const std::string_view part : split_list(text)) {
    const size_t open = part.find('[');
    if (open == std::string_view::npos) {
      names.emplace_back(part);
      continue;
    }
    const size_t close = part.find(']', open);
    std::vector<std::string> numbers;
    bool good = close != std::string_view::npos && part.find('[', close) == std::string_view::npos;
    if (good) {
      for (const std::string_view range : split_list(part.substr(open + 1, close - open - 1))) {
        good = good && expand_range(range, numbers) && numbers.size() <= kNamesMax;
      }
    }
    if (!good || numbers.empty()) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is no list of names such as node[0-3,7]",
                  where, part);
    }
    for (const std::string& number : numbers) {
      names.push_back(fmt::format("{}{}{}", part.substr(0, open), number, part.substr(close + 1)));
    }
    if (names.size() > kNamesMax) {
      return fail(Code::kInvalidArgument, "{}: more than {} names", where, kNamesMax);
    }
  }
  return names;
}

namespace {

// Whether every way up comes to an end. `parent` is that of nodes and switches, by name.
Status check_no_circle(const std::map<std::string, std::string>& parent, std::string_view where) {
  for (const auto& entry : parent) {
    size_t steps = 0;
    for (auto at = parent.find(entry.second); at != parent.end(); at = parent.find(at->second)) {
      if (++steps <= parent.size()) continue;
      return fail(Code::kCorrupt, "{}: switch \"{}\" hangs below itself", where, at->first);
    }
  }
  return {};
}

}  // namespace

Result<Description> parse_slurm_topology(std::string_view text, std::string_view where) {
  JIGE_TRY(const std::vector<Line> lines, read_lines(text, where));
  Description d;
  std::map<std::string, std::string> parent;  // of nodes and switches
  const auto hang = [&](const std::string& name, const std::string& on,
                        const Line& line) -> Status {
    if (const auto [other, fresh] = parent.emplace(name, on); !fresh) {
      return fail(Code::kCorrupt, "{}: \"{}\" hangs on {} and on {}", line.where, name,
                  other->second, on);
    }
    return {};
  };
  // Hosts come first, so that their numbers are ranks.
  for (const Line& line : lines) {
    JIGE_DO(check_line(line));
    const auto nodes = line.fields.find("nodes");
    if (nodes == line.fields.end()) continue;
    JIGE_TRY(const std::vector<std::string> names, expand_host_list(nodes->second, line.where));
    for (const std::string& name : names) {
      JIGE_DO(hang(name, line.fields.at("switchname"), line));
      d.add({.name = name, .kind = ComponentKind::kHost});
    }
    if (d.components.size() + lines.size() > kNamesMax) {
      return fail(Code::kExhausted, "{}: more than {} nodes and switches", where, kNamesMax);
    }
  }
  if (d.components.empty()) return fail(Code::kCorrupt, "{}: names no nodes", where);
  for (const Line& line : lines) {
    const std::string& name = line.fields.at("switchname");
    if (d.find(name) >= 0) {
      return fail(Code::kCorrupt, "{}: \"{}\" is there already", line.where, name);
    }
    d.add({.name = name, .kind = ComponentKind::kRouter});
  }
  for (const Line& line : lines) {
    const auto below = line.fields.find("switches");
    if (below == line.fields.end()) continue;
    JIGE_TRY(const std::vector<std::string> names, expand_host_list(below->second, line.where));
    for (const std::string& name : names) JIGE_DO(hang(name, line.fields.at("switchname"), line));
  }
  JIGE_DO(check_no_circle(parent, where));
  for (const auto& [name, on] : parent) {
    const int32_t from = d.find(name), to = d.find(on);
    if (from < 0) return fail(Code::kCorrupt, "{}: no switch \"{}\", below {}", where, name, on);
    const bool host = d.components[static_cast<size_t>(from)].kind == ComponentKind::kHost;
    d.join({.from = from, .to = to, .kind = host ? LinkKind::kNetwork : LinkKind::kTrunk});
  }
  return d;
}

Result<Topology> load_slurm_topology(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kSlurmFileBytesMax));
  JIGE_TRY(Description description, parse_slurm_topology(text, path));
  description.name = path;
  return Topology::create(std::move(description), path);
}

}  // namespace jige::topology
