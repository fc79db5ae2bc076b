#include "train/tokenize.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <utility>

#include "base/file.h"
#include "base/rng.h"
#include "formats/xxhash64.h"
#include "text/test_fixtures.h"
#include "train/document_index.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

class TokenizeTest : public testing::Test {
 protected:
  void SetUp() override { write_test_tokenizer(folder_.file("tokenizer")); }

  TokenizeOptions options() const {
    return {.cache_folder = folder_.file("cache"), .tokenizer_folder = folder_.file("tokenizer")};
  }
  Result<TokenizedFile> tokenize(const std::string& path, const TokenizeOptions& options,
                                 int threads = 1) {
    ThreadTeam team(threads);
    return tokenize_file(path, load_test_tokenizer(folder_.file("tokenizer")), options, team);
  }
  Result<TokenizedFile> tokenize(const std::string& path) { return tokenize(path, options()); }

  static std::vector<int32_t> ids_of(const TokenizedFile& copy) {
    const auto file = formats::TokenFile::open(copy.path, {});
    EXPECT_TRUE(file);
    std::vector<int32_t> ids(static_cast<size_t>(file->count()));
    EXPECT_TRUE(file->read(0, ids));
    return ids;
  }
  static std::vector<int64_t> ends_of(const TokenizedFile& copy) {
    const auto file = formats::TokenFile::open(copy.path, {});
    const auto ends = read_document_ends(*file, -1);
    EXPECT_TRUE(ends);
    return *ends;
  }
  size_t files_in_cache() const {
    size_t count = 0;
    std::error_code error;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(folder_.file("cache"), error)) {
      ++count;
    }
    return count;
  }

  TestFolder folder_;
};

TEST_F(TokenizeTest, WritesTokensMaskAndDocuments) {
  const auto path = folder_.write("a.jsonl",
                                  "{\"text\": \"ab\"}\n"
                                  "{\"prompt\": \"c\", \"completion\": \"d\"}\n");
  const auto copy = tokenize(path);
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_FALSE(copy->from_cache);
  EXPECT_EQ(copy->token_count, 8);
  EXPECT_EQ(copy->document_count, 2);
  EXPECT_EQ(ends_of(*copy), (std::vector<int64_t>{4, 8}));
  const auto file = formats::TokenFile::open(copy->path, {});
  std::vector<uint8_t> learned(8);
  ASSERT_TRUE(file->read_mask(0, learned));
  EXPECT_EQ(learned, (std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 1, 1}));
}

TEST_F(TokenizeTest, MakesACopyOnceAndFindsItAgain) {
  const auto path = folder_.write("a.txt", "some text");
  const auto first = tokenize(path);
  ASSERT_TRUE(first);
  const auto again = tokenize(path);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->from_cache);
  EXPECT_EQ(again->path, first->path);
  EXPECT_EQ(again->token_count, first->token_count);
}

TEST_F(TokenizeTest, MakesAnotherWhenFileTokenizerOrOptionsChange) {
  const auto path = folder_.write("a.txt", "one\n\ntwo");
  const auto first = tokenize(path);
  auto other = options();
  other.records.split = TextSplit::kBlankLines;
  const auto split = tokenize(path, other);
  EXPECT_NE(split->path, first->path);
  EXPECT_EQ(split->document_count, 2);
  folder_.write("a.txt", "one\n\ntwo!");
  EXPECT_NE(tokenize(path)->path, first->path);
  folder_.write("a.txt", "one\n\ntwo");
  EXPECT_EQ(tokenize(path)->path, first->path);
  write_test_tokenizer(folder_.file("tokenizer"), false);
  EXPECT_NE(tokenize(path)->path, first->path);
}

// A run goes on only with the keys that it began with.
TEST_F(TokenizeTest, OnlyCompletionsBehindASpaceGotOtherKeysThanBefore) {
  const std::string plain = "{\"text\": \"the \\\"completion\\\"\"}\n";
  const std::string completion = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  const std::string escaped = "{\"prompt\": \"a\", \"\\u0063ompletion\": \"b\"}\n";
  // Across the border of the blocks in which a file is read.
  const std::string far = "{\"text\": \"" + std::string((1 << 20) - 34, 'x') + "\"}\n" + completion;
  const std::vector<std::string> files = {plain, completion, escaped, far};
  const std::pair<const char*, std::vector<const char*>> before[] = {
      {"gpt2", {"4a320a0f15083b6d", "03fc255c08fc16e1", "618d98c0180092ac", "6389a6370789d6be"}},
      {"llama2_legacy",
       {"d101cfe09ecaddb2", "f7f547000dc4754e", "f1b277245b2946ca", "9dfe4b6a7077ffb1"}}};
  for (const auto& [name, keys] : before) {
    auto chosen = options();
    chosen.tokenizer_folder =
        std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/tokenizers/" + name;
    const text::Tokenizer tokenizer = load_test_tokenizer(chosen.tokenizer_folder);
    for (size_t i = 0; i < files.size(); ++i) {
      ThreadTeam team(1);
      const auto copy = tokenize_file(folder_.write("a.jsonl", files[i]), tokenizer, chosen, team);
      ASSERT_TRUE(copy) << copy.error().message;
      const bool same = formats::checksum_text(copy->key) == keys[i];
      EXPECT_EQ(same, !tokenizer.marks_start() || i == 0) << name << " " << i;
    }
  }
}

TEST_F(TokenizeTest, GivesALongTextTheIdsOfItsWhole) {
  constexpr size_t kShortPieceBytes = size_t{100} << 10;
  std::string text;
  Rng rng(3);
  const std::vector<std::string> words = {"one",  "The", "end,",      "of",
                                          "it's", "12",  "caf\u00e9", "a"};
  while (text.size() < 3 * kShortPieceBytes / 2) {
    text += words[rng.below(words.size())];
    text += rng.below(12) == 0 ? "\n" : rng.below(9) == 0 ? "  " : " ";
  }
  text += "end";
  const auto path = folder_.write("a.txt", text);
  for (const char* name :
       {"tokenizers/gpt2_prefix", "tokenizers/llama2_legacy", "sentencepiece/bpe"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = text::Tokenizer::load(text::fixture_path(name));
    ASSERT_TRUE(tokenizer);
    ThreadTeam team(2);
    TokenizeOptions options = this->options();
    options.tokenizer_folder = text::fixture_path(name);
    options.encoder.append_eos = false;
    options.records.piece_bytes = kShortPieceBytes;
    const auto copy = tokenize_file(path, *tokenizer, options, team);
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ(copy->document_count, 1);
    auto whole = tokenizer->encode(text, {.add_special = false, .allow_special = false});
    ASSERT_TRUE(whole);
    const auto prefix = tokenizer->prefix_ids();
    whole->insert(whole->begin(), prefix.begin(), prefix.end());
    EXPECT_TRUE(ids_of(*copy) == *whole);
  }
}

TEST_F(TokenizeTest, OnlyTextsInPiecesGotOtherKeysThanBefore) {
  // What each had before pieces were cut at safe places.
  const std::pair<size_t, const char*> before[] = {{kPieceBytes, "4bce7902885c89c5"},
                                                   {kPieceBytes + 1, "e14a74d579dfaffb"}};
  for (const auto& [size, key] : before) {
    const auto copy = tokenize(folder_.write("a.txt", std::string(size, 'x')));
    ASSERT_TRUE(copy) << copy.error().message;
    const std::string now = formats::checksum_text(copy->key);
    EXPECT_EQ(now == key, size <= kPieceBytes) << now;
  }
}

TEST_F(TokenizeTest, MakesTheSameCopyOnAnyNumberOfThreads) {
  const auto path = folder_.write("a.jsonl", small_corpus(500));
  const auto one = tokenize(path);
  ASSERT_TRUE(one);
  const auto ids = ids_of(*one);
  const auto ends = ends_of(*one);
  std::filesystem::remove_all(folder_.file("cache"));
  const auto two = tokenize(path, options(), 2);
  ASSERT_TRUE(two);
  EXPECT_FALSE(two->from_cache);
  EXPECT_EQ(ids_of(*two), ids);
  EXPECT_EQ(ends_of(*two), ends);
}

TEST_F(TokenizeTest, NamesTheBadLineAndLeavesNothingBehind) {
  const auto path = folder_.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \n{\"text\": \"b\"}\n");
  const auto copy = tokenize(path);
  ASSERT_FALSE(copy);
  EXPECT_NE(copy.error().message.find("a.jsonl:2"), std::string::npos) << copy.error().message;
  EXPECT_EQ(files_in_cache(), 0u);
  auto skipping = options();
  skipping.records.skip_bad = true;
  const auto skipped = tokenize(path, skipping);
  ASSERT_TRUE(skipped);
  EXPECT_EQ(skipped->skipped_count, 1);
  EXPECT_EQ(skipped->document_count, 2);
}

TEST_F(TokenizeTest, StopsWhenTheCallerSaysSo) {
  auto stopping = options();
  int64_t total = 0;
  stopping.progress = [&](int64_t, int64_t total_bytes) {
    total = total_bytes;
    return false;
  };
  const auto copy = tokenize(folder_.write("a.txt", "some text"), stopping);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, Code::kCancelled);
  EXPECT_EQ(total, 9);
  EXPECT_EQ(files_in_cache(), 0u);
}

TEST_F(TokenizeTest, MakesACopyAnewWhenItIsDamaged) {
  const auto path = folder_.write("a.txt", "some text");
  const auto first = tokenize(path);
  ASSERT_TRUE(first);
  std::filesystem::resize_file(first->path, 1030);
  const auto again = tokenize(path);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->from_cache);
  EXPECT_EQ(again->token_count, first->token_count);
  std::filesystem::remove(document_index_path(first->path));
  EXPECT_FALSE(tokenize(path)->from_cache);
}

TEST_F(TokenizeTest, MakesACopyAnewWhoseMaskIsGone) {
  const auto path = folder_.write("a.jsonl", "{\"prompt\": \"c\", \"completion\": \"d\"}\n");
  const auto first = tokenize(path);
  ASSERT_TRUE(first);
  std::filesystem::remove(first->path + ".mask");
  const auto again = tokenize(path);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->from_cache);
  EXPECT_TRUE(formats::TokenFile::open(again->path, {})->has_mask());
}

TEST_F(TokenizeTest, MakesACopyAnewThatHoldsWhatNoTokenizerGives) {
  const auto path = folder_.write("a.jsonl", "{\"prompt\": \"c\", \"completion\": \"d\"}\n");
  const auto first = tokenize(path);
  ASSERT_TRUE(first);
  const auto ids = ids_of(*first);
  for (const std::string& name : {first->path, first->path + ".mask"}) {
    std::string bytes = *read_file(name);
    bytes.back() = '\x7f';
    ASSERT_TRUE(write_file_atomic(name, bytes));
    const auto again = tokenize(path);
    ASSERT_TRUE(again);
    EXPECT_FALSE(again->from_cache) << name;
    EXPECT_EQ(ids_of(*again), ids);
  }
}

TEST_F(TokenizeTest, MakesACopyAnewWhereAFileOfTheTokenizerChanges) {
  const auto path = folder_.write("a.jsonl", "{\"text\": \"words\"}\n");
  TokenizeOptions lists = options();
  lists.tokenizer_folder = folder_.file("lists");
  std::filesystem::create_directory(lists.tokenizer_folder);
  const auto is_known = [&] { return tokenize(path, lists)->from_cache; };
  is_known();
  for (const std::string name : {"vocab.json", "merges.txt", "added_tokens.json", "config.json"}) {
    ASSERT_TRUE(write_file_atomic(lists.tokenizer_folder + "/" + name, "{}"));
    EXPECT_FALSE(is_known()) << name;
    EXPECT_TRUE(is_known()) << name;
  }
  // Then the model's type says nothing of the tokenizer.
  ASSERT_TRUE(write_file_atomic(lists.tokenizer_folder + "/tokenizer.json", "{}"));
  is_known();
  ASSERT_TRUE(write_file_atomic(lists.tokenizer_folder + "/config.json", "[]"));
  EXPECT_TRUE(is_known());
}

// The copy would have the name of what the file held before.
TEST_F(TokenizeTest, RefusesAFileThatChangesWhileItIsRead) {
  std::string records;  // more than are read before the first progress
  for (int i = 0; i < 10000; ++i) records += "{\"text\": \"words\"}\n";
  const auto path = folder_.write("a.jsonl", records);
  auto changing = options();
  bool changed = false;
  changing.progress = [&](int64_t, int64_t) {
    if (!std::exchange(changed, true)) {
      std::ofstream(path, std::ios::app) << "{\"text\": \"b\"}\n";
    }
    return true;
  };
  const auto copy = tokenize(path, changing);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, Code::kUnavailable);
  EXPECT_NE(copy.error().message.find("a.jsonl"), std::string::npos) << copy.error().message;
  EXPECT_EQ(files_in_cache(), 0u);
  EXPECT_TRUE(tokenize(path));
}

TEST_F(TokenizeTest, ReportsAFullDiskAndLeavesNothingBehind) {
  const auto path = folder_.write("a.txt", std::string(200000, 'x'));
  const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  ThreadTeam team(1);
  const auto copy = tokenize_file(path, tokenizer, options(), team);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, Code::kExhausted) << copy.error().message;
  EXPECT_EQ(files_in_cache(), 0u);
}

TEST_F(TokenizeTest, NamesAMissingFile) {
  const auto copy = tokenize(folder_.file("absent.txt"));
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, Code::kNotFound);
  EXPECT_NE(copy.error().message.find("absent.txt"), std::string::npos);
}

TEST(DocumentIndex, IsRefusedWhenItContradictsItsFile) {
  const TestFolder folder;
  const std::string path = folder.file("a.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 10});
  ASSERT_TRUE(writer->append(std::vector<int32_t>{1, 2, 3, 4, 5}));
  ASSERT_TRUE(writer->commit());
  const auto file = formats::TokenFile::open(path, {});
  ASSERT_TRUE(file);
  const auto refused = [&] {
    const auto ends = read_document_ends(*file, -1);
    return !ends && ends.error().code == Code::kCorrupt;
  };
  ASSERT_TRUE(write_document_index(path, std::vector<int64_t>{2, 5}));
  EXPECT_EQ(*read_document_ends(*file, -1), (std::vector<int64_t>{2, 5}));
  for (const auto& ends : std::vector<std::vector<int64_t>>{{}, {4}, {5, 5}, {3, 2, 5}, {0, 5}}) {
    ASSERT_TRUE(write_document_index(path, ends));
    EXPECT_TRUE(refused()) << ends.size();
  }
  ASSERT_TRUE(write_document_index(path, std::vector<int64_t>{2, 5}));
  for (const size_t size : {0, 10, 24, 39}) {
    std::filesystem::resize_file(document_index_path(path), size);
    EXPECT_TRUE(refused()) << size;
  }
}

TEST(DocumentIndex, FallsBackOnSeparators) {
  const TestFolder folder;
  const std::string path = folder.file("a.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 10});
  ASSERT_TRUE(writer->append(std::vector<int32_t>{1, 2, 9, 9, 5}));
  ASSERT_TRUE(writer->commit());
  const auto file = formats::TokenFile::open(path, {});
  EXPECT_EQ(*read_document_ends(*file, 9), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(*read_document_ends(*file, -1), (std::vector<int64_t>{5}));
}

}  // namespace
}  // namespace jige::train
