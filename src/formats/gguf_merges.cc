// merges_of_scores of gguf_tokenizer.h.
#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "formats/gguf_tokenizer.h"

namespace jige::formats {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

struct ScoredMerge {
  size_t piece;
  size_t left;
  size_t right;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> merges_of_scores(
    const std::vector<std::string_view>& pieces, const std::vector<float>& scores) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty()) ids.emplace(pieces[id], id);
  }
  std::vector<ScoredMerge> found;
  for (size_t id = 0; id < pieces.size(); ++id) {
    const std::string_view piece = pieces[id];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (!begins_character(piece[cut])) continue;
      const auto left = ids.find(piece.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(piece.substr(cut));
      if (right != ids.end()) found.push_back({id, left->second, right->second});
    }
  }
  std::sort(found.begin(), found.end(), [&](const ScoredMerge& a, const ScoredMerge& b) {
    if (scores[a.piece] != scores[b.piece]) return scores[a.piece] > scores[b.piece];
    return std::tie(a.piece, a.left, a.right) < std::tie(b.piece, b.left, b.right);
  });
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(found.size());
  for (const ScoredMerge& merge : found) {
    merges.emplace_back(pieces[merge.left], pieces[merge.right]);
  }
  return merges;
}

}  // namespace jige::formats
