// Seeded mutations of everything this folder reads: nothing may crash, hang or leave the bounds,
// and what loads must still work. The seed is printed; JIGE_FUZZ_SEED sets another,
// JIGE_FUZZ_ROUNDS multiplies the number of rounds.
#include <cstdio>

#include "base/base64.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "text/character_map.h"
#include "text/chat_encode.h"
#include "text/merge_list.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"
#include "text/tokenizer_core.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

class TextFuzz : public ::testing::Test {
 protected:
  TextFuzz() : seed_(fuzz_seed(2024)), rng_(derive_key(seed_, "text fuzz")) {
    std::printf("fuzz seed %llu\n", static_cast<unsigned long long>(seed_));
  }

  size_t place(const std::string& text) { return rng_.below(text.size() + 1); }

  // A few random edits: bytes changed, cut, doubled, moved, or replaced by words of the format.
  std::string mutate(std::string text, std::span<const std::string> words) {
    const uint64_t edits = 1 + rng_.below(4);
    for (uint64_t i = 0; i < edits && !text.empty(); ++i) {
      const size_t at = place(text);
      const size_t size = std::min<size_t>(rng_.below(20), text.size() - at);
      switch (rng_.below(6)) {
        case 0:
          if (at < text.size()) text[at] = static_cast<char>(rng_.below(256));
          break;
        case 1:
          text.erase(at, size);
          break;
        case 2:
          text.insert(place(text), text.substr(at, size));
          break;
        case 3:
          text.resize(at);
          break;
        default:
          text.replace(at, rng_.below(4) ? 0 : size, words[rng_.below(words.size())]);
          break;
      }
    }
    return text;
  }

  std::string random_bytes(size_t size_max) {
    std::string bytes;
    const size_t size = rng_.below(size_max);
    for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(rng_.below(256)));
    return bytes;
  }

  // Valid characters from where tokenizers make differences: capitals, accents before and behind
  // their letters, characters of China and Korea, marks, controls, white space, the largest.
  std::string random_characters(size_t count_max) {
    constexpr char32_t kBegins[] = {0x20,   0x41,   0x5B,   0xC0,    0x130,   0x300,
                                    0x390,  0x600,  0x900,  0xAC00,  0x1100,  0x1E00,
                                    0x2000, 0x3000, 0x4E00, 0xD7A0,  0xE000,  0xFE00,
                                    0xFFF0, 0x0,    0x7F,   0x1F1E0, 0x20000, 0x10FFF0};
    std::string text;
    for (size_t count = rng_.below(count_max); count > 0; --count) {
      const auto offset = static_cast<char32_t>(rng_.below(16));
      text += to_utf8(kBegins[rng_.below(std::size(kBegins))] + offset);
      if (rng_.below(4) == 0) text += ' ';
    }
    return text;
  }

  // What any tokenizer that loads must do.
  void use(const Tokenizer& tokenizer) {
    const std::string texts[] = {"Hello  world\n don't 123 \xE7\x8C\xAB", random_bytes(60),
                                 random_characters(30), ""};
    for (const std::string& text : texts) {
      const auto ids = tokenizer.encode(text, {.allow_special = rng_.below(2) == 0});
      if (!ids) continue;
      for (const int32_t id : *ids) {
        ASSERT_GE(id, 0);
        ASSERT_LT(id, tokenizer.vocab_size());
      }
      const auto decoded = tokenizer.decode(*ids, {});
      ASSERT_TRUE(decoded.has_value());
      ASSERT_TRUE(is_valid_utf8(*decoded));
    }
  }

  void check(Result<TokenizerParts> parts) {
    if (parts) use(Tokenizer(std::make_shared<const TokenizerCore>(std::move(*parts))));
  }

  // Replaces one random value somewhere in the tree.
  void change_tree(Json& node) {
    if (node.is_structured() && !node.empty() && rng_.below(6) != 0) {
      auto child = node.begin();
      std::advance(child, static_cast<std::ptrdiff_t>(rng_.below(node.size())));
      change_tree(*child);
      return;
    }
    const Json values[] = {nullptr,
                           true,
                           -1,
                           3,
                           1e300,
                           "",
                           "a",
                           "Sequence",
                           "ByteLevel",
                           "first",
                           "\\s",
                           "(",
                           Json::array(),
                           Json::object(),
                           Json::array({1, "x"})};
    node = values[rng_.below(std::size(values))];
  }

  uint64_t seed_;
  Rng rng_;
};

TEST_F(TextFuzz, TokenizerFilesWithBrokenBytes) {
  const std::vector<std::string> words = {"null",     "[]",        "{}", "\"\"",       "-1",
                                          "1e9",      "\"type\":", ",",  "\"Regex\":", "(",
                                          "\\\\p{L}", "[",         "}",  "\"vocab\":"};
  for (const auto& name : fixture_folders("tokenizers")) {
    const auto text = read_file(fixture_path("tokenizers/" + name + "/tokenizer.json"));
    ASSERT_TRUE(text.has_value());
    for (uint64_t round = 0; round < fuzz_rounds(30); ++round) {
      SCOPED_TRACE(name + " round " + std::to_string(round));
      const auto tokenizer = Tokenizer::from_json(mutate(*text, words), "fuzz");
      if (tokenizer) use(*tokenizer);
    }
  }
}

TEST_F(TextFuzz, TokenizerFilesWithOtherValues) {
  for (const auto& name : fixture_folders("tokenizers")) {
    const auto text = read_file(fixture_path("tokenizers/" + name + "/tokenizer.json"));
    const Json tree = Json::parse(*text);
    for (uint64_t round = 0; round < fuzz_rounds(15); ++round) {
      SCOPED_TRACE(name + " round " + std::to_string(round));
      Json changed = tree;
      const char* parts[] = {"added_tokens", "normalizer",     "pre_tokenizer", "decoder",
                             "model",        "post_processor", "model",         "pre_tokenizer"};
      for (uint64_t i = 0; i <= rng_.below(3); ++i) change_tree(changed[parts[rng_.below(8)]]);
      const auto tokenizer = Tokenizer::from_json(changed.dump(), "fuzz");
      if (tokenizer) use(*tokenizer);
    }
  }
}

TEST_F(TextFuzz, TokensWithRanks) {
  const std::vector<std::string> words = {"null", "[]", "{}", "-1", "\"rank\":", "==",      "=",
                                          " ",    "\n", "0",  "],", "}, {",      "\"YQ==\""};
  const auto tekken = read_file(fixture_path("ranks/tekken_v11/tekken.json"));
  const auto list = read_file(fixture_path("ranks/moonshot/tiktoken.model"));
  const TokenizerConfig moonshot{.tokenizer_code = "tokenization_kimi.TikTokenTokenizer"};
  for (uint64_t round = 0; round < fuzz_rounds(32); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    check(build_from_tekken(mutate(*tekken, words), {}, "fuzz"));
    check(build_from_rank_list(mutate(*list, words), moonshot, "fuzz"));
    // What is around the long list, which most edits fall into.
    Json changed = Json::parse(*tekken);
    for (uint64_t i = 0; i <= rng_.below(3); ++i) {
      change_tree(changed[rng_.below(2) == 0 ? "config" : "special_tokens"]);
    }
    if (round % 4 == 0) check(build_from_tekken(changed.dump(), {}, "fuzz"));
  }
}

TEST_F(TextFuzz, VocabularyLists) {
  const auto list = read_file(fixture_path("vocab_lists/mpnet/vocab.txt"));
  ASSERT_TRUE(list.has_value());
  const std::vector<std::string> words = {"[CLS]", "\n", "\r\n", "##", "\xE3\x80\x80", "[SEP]\n"};
  const std::string begin = "[UNK]\n[CLS]\n[SEP]\n<s>\n";
  for (uint64_t round = 0; round < fuzz_rounds(100); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    check(build_from_vocab(mutate(begin + list->substr(0, 900), words), {}, "fuzz"));
  }
}

TEST_F(TextFuzz, MergeLists) {
  const std::string folder = fixture_path("merge_lists/prefix");
  const std::string vocab = R"({"<s>": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4, "\u0120ab": 5})";
  const std::string merges = "#version: 0.2\na b\n\u0120 ab\n";
  const std::vector<std::string> marks = {"\"a\": 7,", "{",  "}",   "[",
                                          "null",      "-1", "1e3", "99999999"};
  const std::vector<std::string> lines = {" ", "\n", "\r\n",   "#version",
                                          "a", "ab", "\u0120", "\n\n"};
  const auto files = read_token_files(folder);
  ASSERT_TRUE(files.has_value()) << files.error().message;
  const char* const classes[] = {"GPT2Tokenizer", "RobertaTokenizer", "Qwen2TokenizerFast", ""};
  size_t loaded = 0;
  for (uint64_t round = 0; round < fuzz_rounds(750); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const std::string changed_vocab = rng_.below(2) ? vocab : mutate(vocab, marks);
    const std::string changed_merges = rng_.below(2) ? merges : mutate(merges, lines);
    MergeFiles changed{.vocab = changed_vocab,
                       .vocab_where = "fuzz/vocab.json",
                       .merges = changed_merges,
                       .merges_where = "fuzz/merges.txt"};
    if (rng_.below(3)) changed.tokens = *files;
    // Their ids begin behind the recorded vocabulary.
    if (rng_.below(2)) changed.tokens.added = Json{{"<user>", 6}, {"<think>", 7}};
    for (Json* tree : {&changed.tokens.config, &changed.tokens.special, &changed.tokens.added}) {
      if (rng_.below(3) == 0) change_tree(*tree);
    }
    if (changed.tokens.config.is_object()) {
      changed.tokens.config["tokenizer_class"] = classes[rng_.below(std::size(classes))];
    }
    TokenizerConfig config;
    config.add_bos = rng_.below(2) == 0;
    auto parts = build_from_merges(changed, config);
    loaded += parts.has_value();
    check(std::move(parts));
  }
  EXPECT_GT(loaded, fuzz_rounds(50));
}

TEST_F(TextFuzz, CharacterMaps) {
  const Json file = Json::parse(*read_file(fixture_path("tokenizers/t5/tokenizer.json")));
  const auto text = file["normalizer"]["normalizers"][0]["precompiled_charsmap"];
  const auto bytes = base64_bytes(text.get<std::string>());
  ASSERT_TRUE(bytes.has_value());
  const std::vector<std::string> words = {std::string(4, '\0'), "\xFF\xFF\xFF\xFF", "\x80", "a"};
  const std::string input = "Hello \uFB01 e\u0301\u0302 \uFF01\r\n\u2026 \u3000 \U0001F600 Zq";
  for (uint64_t round = 0; round < fuzz_rounds(2000); ++round) {
    std::string changed = *bytes;
    // Single bits of units first of all: they lead elsewhere.
    for (uint64_t i = rng_.below(6); i > 0; --i) {
      changed[rng_.below(changed.size())] ^= static_cast<char>(1 << rng_.below(8));
    }
    if (rng_.below(3) == 0) changed = mutate(changed, words);
    const auto map = CharacterMap::parse(changed, "fuzz");
    if (!map) continue;
    const auto result = map->apply(input);
    if (!result) continue;
    ASSERT_TRUE(is_valid_utf8(*result)) << "round " << round;
  }
}

TEST_F(TextFuzz, RandomBytesAndIds) {
  for (const auto& name : fixture_folders("tokenizers")) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(fixture_path("tokenizers/" + name));
    ASSERT_TRUE(tokenizer.has_value());
    for (uint64_t round = 0; round < fuzz_rounds(50); ++round) use(*tokenizer);
  }
}

TEST_F(TextFuzz, Templates) {
  const std::vector<std::string> words = {
      "{{",     "}}",        "{%",       "%}",         "{%- ",      " -%}",     "{#",     "#}",
      "if",     "else",      "endif",    "for x in ",  "endfor",    "|",        "tojson", "join",
      "is ",    "not ",      "messages", "loop.",      "(",         ")",        "[",      "]",
      "::",     "~",         "'",        "namespace(", "macro m()", "endmacro", "m()",    "set ",
      "endset", "range(99)", " if ",     "**",         "9"};
  const Json messages = Json::parse(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
          {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f",
           "arguments": {"x": [1, null]}}}]}, {"role": "tool", "content": [1, {"k": 2.5}]}])");
  for (const auto& name : fixture_folders("templates")) {
    const auto text = read_file(fixture_path("templates/" + name + "/template.jinja"));
    for (uint64_t round = 0; round < fuzz_rounds(75); ++round) {
      SCOPED_TRACE(name + " round " + std::to_string(round));
      const auto chat = ChatTemplate::parse(mutate(*text, words), "fuzz");
      if (!chat) continue;
      const auto render = chat->render_with_spans(messages, {.tools = &messages});
      if (!render) continue;
      EXPECT_TRUE(is_valid_utf8(render->text));
      for (const ChatSpan& span : render->generated) {
        EXPECT_LE(span.begin, span.end);
        EXPECT_LE(span.end, render->text.size());
      }
    }
  }
}

TEST_F(TextFuzz, SmallTemplates) {
  const auto rows = fixture_rows("template_language/cases.jsonl");
  const std::vector<std::string> words = {"{{", "}}", "|", "(", ")", "'",
                                          "[",  "]",  ".", "x", "1", "-1"};
  for (uint64_t round = 0; round < fuzz_rounds(3000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::string text = rows[rng_.below(rows.size())]["template"].get<std::string>();
    if (rng_.below(3) == 0) text += rows[rng_.below(rows.size())]["template"].get<std::string>();
    const auto chat = ChatTemplate::parse(mutate(text, words), "fuzz");
    if (chat) (void)chat->render(Json::array(), {});
  }
}

TEST_F(TextFuzz, ConversationsOfAnyShape) {
  const auto tokenizer = Tokenizer::load(fixture_path("tokenizers/qwen2"));
  const Json shape = Json::parse(
      R"([{"role": "user", "content": "a<|im_end|>"}, {"role": "assistant", "content": "b"},
          {"role": "user", "content": [{"type": "text", "text": "<think>"}]},
          {"role": "assistant", "content": "c", "tool_calls": []}])");
  for (const auto& name : fixture_folders("templates")) {
    const auto source = read_file(fixture_path("templates/" + name + "/template.jinja"));
    const auto chat = ChatTemplate::parse(*source, name);
    for (uint64_t round = 0; round < fuzz_rounds(30); ++round) {
      SCOPED_TRACE(name + " round " + std::to_string(round));
      Json messages = shape;
      for (uint64_t i = 0; i <= rng_.below(3); ++i) change_tree(messages);
      const auto encoding = encode_chat_answers(*tokenizer, *chat, messages, {});
      if (!encoding) continue;
      EXPECT_EQ(encoding->ids.size(), encoding->answer.size());
    }
  }
}

}  // namespace
}  // namespace jige::text
