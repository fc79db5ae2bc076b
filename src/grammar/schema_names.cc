#include "grammar/schema_names.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "grammar/code_points.h"
#include "text/unicode.h"

namespace jige::grammar {
namespace {

// Characters that stand in a string as they are.
CodePoints plain_name_characters() {
  return CodePoints().add(0, 0x1F).add('"', '"').add('\\', '\\').complement();
}

class OtherNames {
 public:
  OtherNames(GrammarBuilder& builder, NodeId next)
      : builder_(builder), close_(builder.byte('"', next)), free_(builder.reserve_split()) {
    wide_ = CodePoints().add(0x80, kCodePointMax).node(builder, free_);
    builder.set_split(free_, {ascii_but({}), wide_, close_});
  }

  // Behind what `names` have in common: `at` characters.
  NodeId behind(std::span<const std::u32string> names, size_t at) {
    if (builder_.overflowed()) return builder_.end();
    std::vector<NodeId> branches;
    CodePoints taken;
    size_t i = 0;
    while (i < names.size() && names[i].size() == at) ++i;
    if (i == 0) branches.push_back(close_);
    while (i < names.size()) {
      size_t j = i;
      while (j < names.size() && names[j][at] == names[i][at]) ++j;
      const CodePoints one = CodePoints::of(names[i][at]);
      taken.add(one);
      branches.push_back(one.node(builder_, behind(names.subspan(i, j - i), at + 1)));
      i = j;
    }
    branches.push_back(ascii_but(taken));
    const bool wide = !taken.empty() && taken.ranges().back().last >= 0x80;
    const CodePoints others = CodePoints().add(0x80, kCodePointMax).without(taken);
    branches.push_back(wide ? others.node(builder_, free_) : wide_);
    return builder_.split(branches);
  }

 private:
  // An ASCII character but those, after which the name can be no listed one any more.
  NodeId ascii_but(const CodePoints& taken) {
    return CodePoints()
        .add(0, 0x7F)
        .without(plain_name_characters().complement())
        .without(taken)
        .node(builder_, free_);
  }

  GrammarBuilder& builder_;
  NodeId close_;
  NodeId free_;  // any characters to the end of the name
  NodeId wide_ = 0;
};

}  // namespace

NodeId other_name(GrammarBuilder& builder, const std::vector<std::string>& names, NodeId next) {
  const CodePoints plain = plain_name_characters();
  std::vector<std::u32string> listed;
  for (const std::string& name : names) {
    std::u32string wide;
    for (size_t at = 0; at < name.size();) {
      const text::Decoded decoded = text::decode_utf8(std::string_view(name).substr(at));
      wide += decoded.code_point;
      at += decoded.size;
    }
    // A name with escapes is written with them, so it is another anyway.
    if (std::ranges::all_of(wide, [&](char32_t c) { return plain.contains(c); })) {
      listed.push_back(std::move(wide));
    }
  }
  std::ranges::sort(listed);
  listed.erase(std::ranges::unique(listed).begin(), listed.end());
  OtherNames others(builder, next);
  return builder.byte('"', others.behind(listed, 0));
}

}  // namespace jige::grammar
