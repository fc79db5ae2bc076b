#include "grammar/repeat.h"

#include <span>
#include <string_view>

namespace jige::grammar {
namespace {

// Of sorted texts, from byte `at` on: what they have in common, then a branch for each byte that
// follows.
NodeId branch(GrammarBuilder& builder, std::span<const std::string> texts, size_t at, NodeId next) {
  const std::string& first = texts.front();
  const std::string& last = texts.back();
  size_t end = at;
  while (end < first.size() && end < last.size() && first[end] == last[end]) ++end;
  std::vector<NodeId> branches;
  size_t i = 0;
  if (end == first.size()) {
    branches.push_back(next);
    while (i < texts.size() && texts[i].size() == end) ++i;
  }
  while (i < texts.size()) {
    size_t j = i;
    while (j < texts.size() && texts[j][end] == texts[i][end]) ++j;
    branches.push_back(branch(builder, texts.subspan(i, j - i), end, next));
    i = j;
  }
  return builder.text(std::string_view(first).substr(at, end - at), builder.split(branches));
}

}  // namespace

NodeId one_of(GrammarBuilder& builder, std::vector<std::string> texts, NodeId next) {
  std::ranges::sort(texts);
  return branch(builder, texts, 0, next);
}

}  // namespace jige::grammar
