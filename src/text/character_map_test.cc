#include "text/character_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "text/component.h"

namespace jige::text {
namespace {

// A trie that is larger than it needs to be: the children of every node have 256 units of their
// own.
class MapBuilder {
 public:
  using Rules = std::vector<std::pair<std::string, std::string>>;
  explicit MapBuilder(const Rules& rules) {
    units_.resize(256);
    link(0, 1);
    for (const auto& [key, text] : rules) {
      add(key, texts_.size());
      texts_ += text + '\0';
    }
  }

  void set_unit(size_t place, uint32_t unit) { units_[place] = unit; }
  void set_texts(std::string texts) { texts_ = std::move(texts); }
  // Where the value of a key stands.
  size_t value_place(const std::string& key) const { return blocks_.at(key) * 256; }
  size_t unit_count() const { return units_.size(); }

  std::string bytes() const {
    std::string out;
    append(out, static_cast<uint32_t>(4 * units_.size()));
    for (const uint32_t unit : units_) append(out, unit);
    return out + texts_;
  }

 private:
  static void append(std::string& out, uint32_t value) {
    for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
  }
  // Makes a block the children of the node at a place.
  void link(size_t place, size_t block) {
    units_.resize(std::max(units_.size(), (block + 1) * 256));
    units_[place] |= static_cast<uint32_t>((place ^ (block * 256)) << 10);
  }
  void add(const std::string& key, size_t value) {
    size_t block = 1;
    size_t place = 0;
    std::string prefix;
    for (const char byte : key) {
      prefix += byte;
      place = block * 256 + static_cast<uint8_t>(byte);
      const auto [known, added] = blocks_.emplace(prefix, units_.size() / 256);
      block = known->second;
      units_[place] |= static_cast<uint8_t>(byte);
      if (added) link(place, block);
    }
    units_[place] |= 1u << 8;
    units_[block * 256] = static_cast<uint32_t>(value) | 1u << 31;
  }

  std::vector<uint32_t> units_;
  std::map<std::string, size_t> blocks_;
  std::string texts_;
};

std::string changed(const MapBuilder& builder, std::string_view text) {
  const auto map = CharacterMap::parse(builder.bytes(), "test");
  EXPECT_TRUE(map.has_value()) << map.error().message;
  const auto result = map->apply(text);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or("");
}

TEST(CharacterMap, ReplacesLeavesOutAndKeeps) {
  const MapBuilder map({{"a", "xyz"}, {"b", ""}, {"\u00e9", "e"}, {"\u3000", " "}});
  EXPECT_EQ(changed(map, ""), "");
  EXPECT_EQ(changed(map, "cab\u00e9\u3000d\u00e8"), "cxyze d\u00e8");
  EXPECT_EQ(changed(map, std::string("\0a\0", 3)), std::string("\0xyz\0", 5));
}

TEST(CharacterMap, OfAShortClusterTheShortestKeyReplacesAll) {
  const MapBuilder map({{"e", "E"}, {"e\u0301", "\u00e9"}, {"o\u0302", "\u00f4"}, {"\r\n", "!"}});
  EXPECT_EQ(changed(map, "e"), "E");
  EXPECT_EQ(changed(map, "e\u0301"), "E") << "the longer key is never found";
  EXPECT_EQ(changed(map, "o\u0302"), "\u00f4");
  EXPECT_EQ(changed(map, "o\u0302\u0323"), "\u00f4") << "the second mark is lost";
  EXPECT_EQ(changed(map, "o\u0301"), "o\u0301");
  EXPECT_EQ(changed(map, "\r\n\r"), "!\r");
  // Seven bytes: every character by itself.
  EXPECT_EQ(changed(map, "e\u0301\u0301\u0301"), "E\u0301\u0301\u0301");
}

TEST(CharacterMap, RefusesSizesThatDoNotFit) {
  const std::string good = MapBuilder(MapBuilder::Rules{{"a", "b"}}).bytes();
  const auto code = [](const std::string& bytes) {
    const auto map = CharacterMap::parse(bytes, "test");
    return map ? Code::kInternal : map.error().code;
  };
  EXPECT_EQ(code(""), Code::kCorrupt);
  EXPECT_EQ(code(good.substr(0, 3)), Code::kCorrupt);
  EXPECT_EQ(code(std::string(4, '\0')), Code::kCorrupt) << "no trie";
  EXPECT_EQ(code(good.substr(0, 100)), Code::kCorrupt);
  EXPECT_EQ(code(std::string("\x06\0\0\0abcdef", 10)), Code::kCorrupt) << "half a unit";
  EXPECT_EQ(code(std::string("\xff\xff\xff\xff", 4) + good), Code::kCorrupt);
  EXPECT_EQ(code(good + "\xff"), Code::kCorrupt) << "not UTF-8";
}

TEST(CharacterMap, ATrieThatLeadsOutsideIsDamage) {
  const auto code_with = [](size_t place, uint32_t unit, const char* texts = nullptr) {
    MapBuilder builder(MapBuilder::Rules{{"a\u0301", "\u00e9"}});
    if (place < builder.unit_count()) builder.set_unit(place, unit);
    if (texts) builder.set_texts(texts);
    const auto map = CharacterMap::parse(builder.bytes(), "test");
    EXPECT_TRUE(map.has_value());
    const auto result = map->apply("xa\u0301y");
    return result ? Code::kInternal : result.error().code;
  };
  const size_t value = MapBuilder(MapBuilder::Rules{{"a\u0301", "c"}}).value_place("a\u0301");
  EXPECT_EQ(code_with(0, 0xFFFFFCFF), Code::kCorrupt);
  EXPECT_EQ(code_with(0, 0xFFFFFEFF), Code::kCorrupt) << "far away";
  EXPECT_EQ(code_with(256 + 'a', 0x7FFFFC00 | 'a'), Code::kCorrupt);
  EXPECT_EQ(code_with(256 + 'a', 0x7FFFFD00 | 'a'), Code::kCorrupt) << "its leaf";
  EXPECT_EQ(code_with(value, 1u << 31 | 4), Code::kCorrupt) << "behind the texts";
  EXPECT_EQ(code_with(value, 1u << 31 | 1), Code::kCorrupt) << "inside a character";
  EXPECT_EQ(code_with(value, 1u << 31 | 3), Code::kInternal) << "at the end: an empty text";
  EXPECT_EQ(code_with(value, 1u << 31, "no end"), Code::kInternal);
}

TEST(CharacterMap, ATextCannotGrowWithoutBound) {
  const auto map = CharacterMap::parse(
      MapBuilder(MapBuilder::Rules{{"a", std::string(1 << 20, 'b')}}).bytes(), "t");
  ASSERT_TRUE(map.has_value());
  const auto result = map->apply(std::string(1000, 'a'));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace jige::text
