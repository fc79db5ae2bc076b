#include "text/added_tokens.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "text/unicode.h"
#include "text/vocabulary.h"

namespace jige::text {
namespace {

constexpr size_t kContentBytesMax = 4096;

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const std::string_view before = text.substr(0, begin);
    if (is_word(decode_utf8(before.substr(last_character(before))).code_point)) return false;
  }
  return end >= text.size() || !is_word(decode_utf8(text.substr(end)).code_point);
}

size_t extend_left(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const size_t at = last_character(text.substr(0, begin));
    if (at < limit || !is_white_space(decode_utf8(text.substr(at)).code_point)) break;
    begin = at;
  }
  return begin;
}

size_t extend_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Decoded next = decode_utf8(text.substr(end));
    if (!is_white_space(next.code_point)) break;
    end += next.size;
  }
  return end;
}

// Whether some guard lies strictly inside (begin, end).
bool covers_guard(std::span<const size_t> guards, size_t begin, size_t end) {
  const auto it = std::upper_bound(guards.begin(), guards.end(), begin);
  return it != guards.end() && *it < end;
}

}  // namespace

void TokenTrie::add(std::string_view text, int32_t value) {
  first_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(byte);
    const uint32_t* child = children_.find(key);
    if (child) {
      node = *child;
      continue;
    }
    node = static_cast<uint32_t>(values_.size());
    values_.push_back(-1);
    children_.set(key, node);
  }
  values_[node] = value;
  longest_bytes_ = std::max(longest_bytes_, text.size());
}

size_t TokenTrie::find(std::string_view text, size_t from, std::vector<End>& ends) const {
  ends.clear();
  if (empty()) return text.size();
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_[static_cast<uint8_t>(text[begin])]) continue;
    find_at(text, begin, ends);
    if (!ends.empty()) return begin;
  }
  return text.size();
}

void TokenTrie::find_at(std::string_view text, size_t begin, std::vector<End>& ends) const {
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const uint32_t* child = children_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (!child) break;
    node = *child;
    if (values_[node] >= 0) ends.push_back({i + 1, values_[node]});
  }
}

bool TokenTrie::touches(std::string_view text, size_t place) const {
  std::vector<End> ends;
  text = text.substr(0, place + std::min(longest_bytes_, text.size() - place));
  for (size_t from = place - std::min(longest_bytes_, place);; ++from) {
    from = find(text, from, ends);
    if (ends.empty() || from > place) return false;
    if (ends.back().end >= place) return true;
  }
}

Status AddedTokens::add(AddedToken token, std::string_view where) {
  if (token.content.empty()) return {};
  if (token.id < 0 || token.id > kTokenIdMax) {
    return fail(Code::kCorrupt, "{}: added token \"{}\" has the id {}, outside 0..{}", where,
                token.content, token.id, kTokenIdMax);
  }
  if (token.content.size() > kContentBytesMax) {
    return fail(Code::kUnsupported, "{}: added token {} has {} bytes, more than {}", where,
                token.id, token.content.size(), kContentBytesMax);
  }
  if (const auto it = by_content_.find(token.content); it != by_content_.end()) {
    by_id_.erase(it->second);
  }
  if (const auto it = by_id_.find(token.id); it != by_id_.end()) {
    by_content_.erase(it->second.content);
  }
  by_content_[token.content] = token.id;
  by_id_[token.id] = std::move(token);
  return {};
}

Status AddedTokens::freeze(const Normalizer& normalizer) {
  RegexScratch scratch;
  std::unordered_set<std::string> normalized;
  for (auto& [id, token] : by_id_) {
    token.shown = token.content;
    if (!token.normalized) {
      raw_.add(token.content, id);
      continue;
    }
    JIGE_TRY(const Normalizer::Normalized changed, normalizer.apply(token.content, scratch));
    token.shown = changed.text;
    // Of tokens that the normalizer makes equal, the one of the smallest id is found.
    const bool is_first = normalized.insert(token.shown).second;
    if (is_first && !token.shown.empty()) normalized_.add(token.shown, id);
  }
  return {};
}

void AddedTokens::split(const TokenTrie& trie, std::string_view text, const SectionOptions& options,
                        std::vector<Section>& out) const {
  std::vector<TokenTrie::End> ends;
  size_t done = 0;       // everything before is in `out`
  size_t from = 0;       // where the search goes on
  size_t space_end = 0;  // where the white space after the last rstrip token ends
  while (from < text.size()) {
    size_t begin = trie.find(text, from, ends);
    if (begin >= text.size()) break;
    // The longest match that covers no guarded place.
    while (!ends.empty() && covers_guard(options.guards, begin, ends.back().end)) ends.pop_back();
    if (ends.empty()) {
      from = begin + 1;
      continue;
    }
    size_t end = ends.back().end;
    const AddedToken& token = by_id_.at(ends.back().value);
    from = end;
    if (!options.allow_special && token.special) continue;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(extend_left(text, begin, done), done);
    if (token.rstrip) end = space_end = end <= space_end ? space_end : extend_right(text, end);
    if (begin >= end) continue;  // it was all white space, which the token before took along
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : find(it->second);
}

std::vector<const AddedToken*> AddedTokens::all() const {
  std::vector<const AddedToken*> tokens;
  for (const auto& [id, token] : by_id_) tokens.push_back(&token);
  return tokens;
}

int32_t AddedTokens::size() const { return by_id_.empty() ? 0 : by_id_.rbegin()->first + 1; }

}  // namespace jige::text
