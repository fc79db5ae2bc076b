#include "text/character_map.h"

#include "text/component.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr size_t kWholeClusterBytes = 6;  // shorter clusters are looked up as a whole

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return value;
}

bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xFF); }
// Two bits of its own shift an offset that is far away.
size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & uint32_t{1} << 9) >> 6); }
size_t value(uint32_t unit) { return unit & ((uint32_t{1} << 31) - 1); }

}  // namespace

Result<CharacterMap> CharacterMap::parse(std::string_view bytes, std::string_view where) {
  const size_t trie_bytes = bytes.size() < 4 ? 0 : read_u32(bytes, 0);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
    return fail(Code::kCorrupt, "{}: a map of {} bytes cannot have a trie of {}", where,
                bytes.size(), trie_bytes);
  }
  CharacterMap map;
  map.where_ = where;
  map.units_.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(read_u32(bytes, at));
  map.texts_ = bytes.substr(4 + trie_bytes);
  if (!is_valid_utf8(map.texts_)) {
    return fail(Code::kCorrupt, "{}: the texts of the map are not valid UTF-8", where);
  }
  return map;
}

Result<uint32_t> CharacterMap::unit(size_t place) const {
  if (place < units_.size()) return units_[place];
  return fail(Code::kCorrupt, "{}: the trie leads to unit {} of {}", where_, place, units_.size());
}

Result<std::optional<std::string_view>> CharacterMap::find(std::string_view text) const {
  size_t place = offset(units_[0]);
  for (const char byte : text) {
    if (byte == 0) break;
    place ^= static_cast<uint8_t>(byte);
    JIGE_TRY(const uint32_t node, unit(place));
    if (label(node) != static_cast<uint8_t>(byte)) break;
    place ^= offset(node);
    if (!has_leaf(node)) continue;
    JIGE_TRY(const uint32_t leaf, unit(place));
    const size_t begin = value(leaf);
    // A place inside a character begins no text.
    if (begin > texts_.size() || (begin < texts_.size() && (texts_[begin] & 0xC0) == 0x80)) {
      return fail(Code::kCorrupt, "{}: the trie leads to byte {} of {} bytes of texts", where_,
                  begin, texts_.size());
    }
    return std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
  }
  return std::optional<std::string_view>();
}

Result<std::string> CharacterMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  const auto append = [&](std::string_view part) -> Status {
    if (part.size() <= kTextBytesMax - out.size()) {
      out.append(part);
      return {};
    }
    return fail(Code::kExhausted, "the normalized text is longer than {} bytes", kTextBytesMax);
  };
  while (!text.empty()) {
    const std::string_view cluster = text.substr(0, grapheme_size(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() < kWholeClusterBytes) {
      JIGE_TRY(const auto whole, find(cluster));
      if (whole) {
        JIGE_DO(append(*whole));
        continue;
      }
    }
    for (size_t at = 0; at < cluster.size();) {
      const std::string_view character = cluster.substr(at, utf8_size(cluster[at]));
      JIGE_TRY(const auto one, find(character));
      JIGE_DO(append(one.value_or(character)));
      at += character.size();
    }
  }
  return out;
}

}  // namespace jige::text
