#include "slurm/host_list.h"

#include <charconv>

#include "base/split.h"

namespace jige::slurm {
namespace {

// One item between commas outside brackets: literal text and bracketed ranges in turns.
class Item {
 public:
  Item(std::string_view text, std::vector<std::string>& names) : text_(text), names_(names) {}

  Status expand() { return expand_from(0, ""); }

 private:
  tl::unexpected<Error> wrong() const {
    return fail(Code::kCorrupt, "node list \"{}\": not as Slurm writes it", text_);
  }

  Status expand_from(size_t at, const std::string& before) {
    const size_t open = text_.find('[', at);
    if (open == std::string_view::npos) {
      if (text_.find(']', at) != std::string_view::npos) return wrong();
      if (names_.size() == kHostsMax) return wrong();
      names_.push_back(before + std::string(text_.substr(at)));
      return {};
    }
    const size_t close = text_.find(']', open);
    if (close == std::string_view::npos) return wrong();
    const std::string prefix = before + std::string(text_.substr(at, open - at));
    for (const auto range : split_at(text_.substr(open + 1, close - open - 1), ',')) {
      JIGE_DO(expand_range(range, prefix, close + 1));
    }
    return {};
  }

  Status expand_range(std::string_view range, const std::string& prefix, size_t rest) {
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    int64_t first = 0, last = 0;
    if (!read(low, first) || !read(high, last) || first > last) return wrong();
    if (last - first >= static_cast<int64_t>(kHostsMax)) return wrong();
    for (int64_t number = first; number <= last; ++number) {
      std::string digits = std::to_string(number);
      // Leading zeros count: n[08-10] has n08 and n09.
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      JIGE_DO(expand_from(rest, prefix + digits));
    }
    return {};
  }

  static bool read(std::string_view digits, int64_t& value) {
    if (digits.empty() || digits.size() > 9) return false;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value >= 0;
  }

  std::string_view text_;
  std::vector<std::string>& names_;
};

}  // namespace

Result<std::vector<std::string>> expand_hosts(std::string_view text) {
  std::vector<std::string> names;
  if (text.empty() || text == "(null)") return names;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i == begin || depth != 0) {
      return fail(Code::kCorrupt, "node list \"{}\": not as Slurm writes it", text);
    }
    JIGE_DO(Item(text.substr(begin, i - begin), names).expand());
    begin = i + 1;
  }
  return names;
}

std::string join_hosts(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace jige::slurm
