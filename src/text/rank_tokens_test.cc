#include "text/rank_tokens.h"

#include <filesystem>
#include <map>

#include "base/base64.h"
#include "base/rng.h"
#include "base/test_path.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/test_fixtures.h"

namespace jige::text {
namespace {

// A tekken.json of all bytes and a few longer tokens.
Json small_tekken() {
  Json vocab = Json::array();
  const auto add = [&](std::string_view token) {
    vocab.push_back(
        {{"rank", vocab.size()}, {"token_bytes", base64_text(token)}, {"token_str", nullptr}});
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* token : {"ab", "abc", "bc"}) add(token);
  return {{"config",
           {{"pattern", R"(\w+|\s+|[^\w\s]+)"},
            {"default_vocab_size", 261},
            {"default_num_special_tokens", 3},
            {"version", "v13"}}},
          {"vocab", std::move(vocab)},
          {"special_tokens",
           Json::array({{{"rank", 1}, {"token_str", "<s>"}, {"is_control", true}},
                        {{"rank", 0}, {"token_str", "<unk>"}, {"is_control", true}}})},
          {"image", {{"rank", 5}, {"token_bytes", "!"}}}};
}

std::string list_of(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) {
    text += base64_text(token) + " " + std::to_string(std::count(text.begin(), text.end(), '\n'));
    text += '\n';
  }
  return text;
}

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

TEST(Tekken, SpecialTokensComeFirstThenTheRanks) {
  const auto ranks = parse_tekken(small_tekken().dump(), "tekken.json");
  ASSERT_TRUE(ranks.has_value()) << ranks.error().message;
  EXPECT_EQ(ranks->first_id, 3);
  EXPECT_EQ(ranks->pattern, R"(\w+|\s+|[^\w\s]+)");
  ASSERT_EQ(ranks->tokens.size(), 258u) << "the last one is left out";
  EXPECT_EQ(ranks->tokens[257], "abc");
  ASSERT_EQ(ranks->special.size(), 3u);
  EXPECT_EQ(ranks->special[0].content, "<unk>");
  EXPECT_EQ(ranks->special[1].content, "<s>");
  EXPECT_EQ(ranks->special[2].content, "<SPECIAL_2>");
  for (const AddedToken& token : ranks->special) EXPECT_TRUE(token.special && !token.normalized);
}

TEST(Tekken, FilesUpToV7NeedNotNameTheirSpecialTokens) {
  Json file = small_tekken();
  file.erase("special_tokens");
  file["config"]["default_num_special_tokens"] = 20;
  file["config"]["default_vocab_size"] = 279;
  for (const char* version : {"v1", "v2", "v3", "v7", "v11", "v13", "v15"}) {
    file["config"]["version"] = version;
    const auto ranks = parse_tekken(file.dump(), "tekken.json");
    EXPECT_EQ(ranks.has_value(), std::string(version).size() == 2) << version;
    if (!ranks) continue;
    EXPECT_EQ(ranks->special[11].content, "<pad>");
  }
}

TEST(Tekken, RefusesFilesThatContradictThemselves) {
  const auto error_of = [](const Json& file) {
    const auto ranks = parse_tekken(file.dump(), "folder/tekken.json");
    return ranks ? Error{Code::kInternal, "it loaded"} : ranks.error();
  };
  struct Change {
    const char* path;
    Json value;
    const char* named;
  };
  const Change changes[] = {
      {"/vocab/5/rank", 6, "rank"},
      {"/vocab/5/rank", -1, "rank"},
      {"/vocab/5/rank", nullptr, "rank"},
      {"/vocab/5/token_bytes", "BQ", "base64"},
      {"/vocab/5/token_bytes", "", "bytes"},
      {"/vocab/257/token_bytes", base64_text(std::string(1025, 'a')), "bytes"},
      {"/vocab/257/token_bytes", "YWI=", "before it"},
      {"/vocab/5/token_bytes", "eHk=", "the byte 5"},
      {"/vocab/5", 5, "rank"},
      {"/vocab", Json::array(), "do not make"},
      {"/config/default_vocab_size", 263, "do not make"},
      {"/config/default_vocab_size", 2, "do not make"},
      {"/config/default_vocab_size", -1, "below 0"},
      {"/config/default_vocab_size", "261", "config"},
      {"/config/default_vocab_size", 1e300, "config"},
      {"/config/default_num_special_tokens", uint64_t{1} << 63, "do not make"},
      {"/config/default_num_special_tokens", 1, "do not make"},
      {"/config/pattern", "", "config"},
      {"/config/version", nullptr, "config"},
      {"/config", nullptr, "config"},
      {"/special_tokens/1/rank", 1, "which another one has"},
      {"/special_tokens/1/rank", 3, "too large"},
      {"/special_tokens/1/token_str", "<s>", "twice"},
      {"/special_tokens/1/token_str", "<SPECIAL_2>", "twice"},
      {"/special_tokens/1/token_str", "", "lacks"},
      {"/special_tokens", nullptr, "missing"},
  };
  for (const Change& change : changes) {
    Json file = small_tekken();
    file[Json::json_pointer(change.path)] = change.value;
    const Error error = error_of(file);
    EXPECT_EQ(error.code, Code::kCorrupt) << change.path << " " << change.value << error.message;
    EXPECT_NE(error.message.find(change.named), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("folder/tekken.json"), std::string::npos) << error.message;
  }
  Json file = small_tekken();
  file["config"]["version"] = "v99";
  EXPECT_EQ(error_of(file).code, Code::kUnsupported);
}

TEST(Tekken, RefusesWhatStandsTwiceOrIsNoJson) {
  const std::string good = small_tekken().dump();
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    return text.replace(text.find(what), what.size(), instead);
  };
  const std::string broken[] = {
      "",
      "[]",
      "{}",
      "null",
      good.substr(0, good.size() / 2),
      good + "x",
      good + std::string(1, '\0'),
      with(R"("rank":0)", R"("rank":0,"rank":0)"),
      with(R"("token_bytes":"AA==")", R"("token_bytes":"AA==","token_bytes":"AA==")"),
      with(R"("version":"v13")", R"("version":"v13","version":"v13")"),
      with(R"("default_vocab_size":261)", R"("default_vocab_size":261,"default_vocab_size":261)"),
      with(R"("special_tokens":)", R"("special_tokens":[],"special_tokens":)"),
      with(R"("vocab":)", R"("vocab":[],"vocab":)"),
      with(R"("image":)",
           R"("image":)" + std::string(70, '[') + std::string(70, ']') + R"(,"audio":)"),
  };
  for (const std::string& text : broken) {
    const auto ranks = parse_tekken(text, "tekken.json");
    ASSERT_FALSE(ranks.has_value()) << text.substr(0, 200);
    EXPECT_EQ(ranks.error().code, Code::kCorrupt) << ranks.error().message;
  }
}

TEST(RankList, HasATokenInEveryLine) {
  std::vector<std::string> tokens = all_bytes();
  tokens.push_back("ab");
  const auto ranks = parse_rank_list(list_of(tokens), "tiktoken.model");
  ASSERT_TRUE(ranks.has_value()) << ranks.error().message;
  EXPECT_EQ(ranks->tokens, tokens);
  EXPECT_EQ(ranks->first_id, 0);
  std::string other_ends = list_of(tokens);
  other_ends.pop_back();
  for (size_t at = other_ends.find('\n'); at != other_ends.npos; at = other_ends.find('\n', at + 2))
    other_ends.insert(at, 1, '\r');
  EXPECT_TRUE(parse_rank_list(other_ends, "tiktoken.model").has_value());
}

TEST(RankList, RefusesLinesThatAreNone) {
  const std::string good = list_of(all_bytes());
  for (const std::string line :
       {"YWI=", "YWI= ", " 256", "YWI= 257", "YWI= 255", "YWI= x", "YWI= -1", "YWI= 256 1", "Y 256",
        "YQ== 256", "YW\tI= 256", "= 256", "YWI= 99999999999999999999999"}) {
    const auto ranks = parse_rank_list(good + line + "\n", "tiktoken.model");
    ASSERT_FALSE(ranks.has_value()) << line;
    EXPECT_EQ(ranks.error().code, Code::kCorrupt) << line;
  }
  EXPECT_FALSE(parse_rank_list("", "tiktoken.model").has_value());
  std::vector<std::string> tokens = all_bytes();
  tokens[7] = "abc";
  EXPECT_FALSE(parse_rank_list(list_of(tokens), "tiktoken.model").has_value());
  tokens = all_bytes();
  tokens.push_back(std::string(1025, 'a'));
  EXPECT_FALSE(parse_rank_list(list_of(tokens), "tiktoken.model").has_value());
  tokens.back().pop_back();
  EXPECT_TRUE(parse_rank_list(list_of(tokens), "tiktoken.model").has_value());
}

// The definition: the pair whose joined bytes have the lowest rank, leftmost first.
std::vector<std::string> naive_ranks(const std::map<std::string, size_t>& ranks,
                                     const std::string& word) {
  if (ranks.contains(word)) return {word};
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find(parts[i] + parts[i + 1]);
      if (it != ranks.end() && it->second < best) best = it->second, at = i;
    }
    if (best == SIZE_MAX) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BpeFromRanks, EqualsTheDefinition) {
  Rng rng(derive_key(5, "ranks"));
  const auto random_word = [&](size_t size) {
    std::string word;
    for (; size > 0; --size) word += "xyz\xFF"[rng.below(4)];
    return word;
  };
  for (int round = 0; round < 40; ++round) {
    std::map<std::string, size_t> ranks;
    std::vector<std::pair<std::string, int64_t>> entries;
    const auto add = [&](const std::string& token) {
      if (!ranks.emplace(token, entries.size()).second) return;
      std::string spelled;
      append_byte_level(spelled, token);
      entries.emplace_back(spelled, entries.size());
    };
    for (const std::string& token : all_bytes()) add(token);
    for (int i = 0; i < 30; ++i) add(random_word(2 + rng.below(4)));
    const auto vocabulary = std::make_shared<const Vocabulary>(*Vocabulary::create(entries, "t"));
    const BpeModel bpe = BpeModel::create_from_ranks(vocabulary, "t");
    BpeScratch scratch;
    for (int i = 0; i < 40; ++i) {
      const std::string word = random_word(1 + rng.below(i % 8 == 0 ? 120 : 12));
      std::vector<int32_t> ids, expected;
      ASSERT_TRUE(bpe.encode(word, scratch, ids).has_value());
      for (const std::string& part : naive_ranks(ranks, word)) {
        expected.push_back(static_cast<int32_t>(ranks[part]));
      }
      EXPECT_EQ(ids, expected) << "round " << round << " word " << i;
    }
  }
}

TEST(RankFolders, TokensHaveTheirRoles) {
  const auto tekken = Tokenizer::load(fixture_path("ranks/tekken_v3"));
  ASSERT_TRUE(tekken.has_value()) << tekken.error().message;
  EXPECT_EQ(tekken->special().bos_token, "<s>");
  EXPECT_EQ(tekken->special().unk_id, 0);
  EXPECT_EQ(tekken->bos_id(), 1);
  EXPECT_EQ(tekken->pad_id(), 11);
  EXPECT_EQ(tekken->eos_ids(), Ids{2});
  EXPECT_EQ(tekken->id_to_token(25), "<SPECIAL_25>");
  EXPECT_EQ(tekken->token_to_id("[INST]"), 3);
  EXPECT_TRUE(tekken->is_special(29));
  EXPECT_FALSE(tekken->is_special(30));
  EXPECT_TRUE(tekken->chat_template().empty());
  const auto moonshot = Tokenizer::load(fixture_path("ranks/moonshot"));
  ASSERT_TRUE(moonshot.has_value()) << moonshot.error().message;
  EXPECT_EQ(moonshot->bos_id(), moonshot->token_to_id("[BOS]"));
  EXPECT_TRUE(moonshot->prefix_ids().empty());
  EXPECT_FALSE(moonshot->is_special(*moonshot->token_to_id("<|tool_call_begin|>")));
}

TEST(RankFolders, AreReadBehindATokenizerJsonAndBeforeATokenizerModel) {
  const std::string folder = test_path("ranks");
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, std::string_view text) {
    ASSERT_TRUE(write_file_atomic(folder + "/" + name, text).has_value());
  };
  write("tokenizer.model", "not a model");
  write("tekken.json", small_tekken().dump());
  const auto tekken = Tokenizer::load(folder);
  ASSERT_TRUE(tekken.has_value()) << tekken.error().message;
  EXPECT_EQ(tekken->encode("abc ab", {}), (Ids{1, 260, 35, 259}));
  write("tokenizer_config.json", R"({"add_bos_token": false, "eos_token": "<SPECIAL_2>"})");
  const auto other = Tokenizer::load(folder);
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_EQ(other->encode("abc ab", {}), (Ids{260, 35, 259}));
  EXPECT_EQ(other->eos_id(), 2);
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  EXPECT_EQ(Tokenizer::load(folder)->vocab_size(), 1);
}

TEST(RankFolders, AListWithoutAKnownPatternIsRefused) {
  const std::string folder = test_path("ranks");
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file_atomic(folder + "/tiktoken.model", list_of(all_bytes())));
  for (const char* config :
       {"{}", R"({"tokenizer_class": "TikTokenTokenizer"})",
        R"({"auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", null]}})"}) {
    ASSERT_TRUE(write_file_atomic(folder + "/tokenizer_config.json", config));
    const auto refused = Tokenizer::load(folder);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_NE(refused.error().message.find("tiktoken.model"), std::string::npos);
  }
  ASSERT_TRUE(write_file_atomic(
      folder + "/tokenizer_config.json",
      R"({"auto_map": {"AutoTokenizer": "tokenization_kimi.TikTokenTokenizer"}})"));
  EXPECT_TRUE(Tokenizer::load(folder).has_value());
}

}  // namespace
}  // namespace jige::text
