#include "formats/token_bin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "formats/test_support.h"

namespace jige::formats {
namespace {

// A file in the layout of llm.c, built independently of the writer.
template <typename T>
std::string llmc_file(int32_t magic, int32_t version, int32_t count, const std::vector<T>& tokens) {
  int32_t header[256] = {magic, version, count};
  std::string bytes(sizeof header + tokens.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), header, sizeof header);
  if (!tokens.empty()) {
    std::memcpy(bytes.data() + sizeof header, tokens.data(), tokens.size() * sizeof(T));
  }
  return bytes;
}

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.count()));
  const Status status = file.read(0, tokens);
  EXPECT_TRUE(status) << status.error().message;
  return tokens;
}

TEST(TokenFile, ReadsFilesOfOtherTrainers) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  write_or_fail(path, llmc_file<uint16_t>(20240520, 1, 3, {5, 65535, 0}));
  const auto narrow = TokenFile::open(path, {});
  ASSERT_TRUE(narrow) << narrow.error().message;
  EXPECT_EQ(all_tokens(*narrow), (std::vector<int32_t>{5, 65535, 0}));
  EXPECT_FALSE(narrow->has_mask());

  write_or_fail(path, llmc_file<uint32_t>(20240801, 7, 3, {5, 128255, 0}));
  const auto wide = TokenFile::open(path, {.vocab_size = 128256});
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_EQ(all_tokens(*wide), (std::vector<int32_t>{5, 128255, 0}));

  write_or_fail(path, std::string("\x01\x00\xff\xff", 4));
  const auto raw = TokenFile::open(path, {.layout = TokenLayout::kRawU16});
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_EQ(all_tokens(*raw), (std::vector<int32_t>{1, 65535}));
  write_or_fail(path, std::string("\x01\x00\x01\x00", 4));
  EXPECT_EQ(all_tokens(*TokenFile::open(path, {.layout = TokenLayout::kRawU32})),
            std::vector<int32_t>{65537});
  write_or_fail(path, "");
  EXPECT_EQ(TokenFile::open(path, {.layout = TokenLayout::kRawU16})->count(), 0);
}

TEST(TokenFileWriter, WritesTheBytesOfOtherTrainers) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  for (const int64_t vocab_size : {int64_t{65536}, int64_t{65537}}) {
    auto writer = TokenFileWriter::create(path, {.vocab_size = vocab_size});
    ASSERT_TRUE(writer) << writer.error().message;
    const int32_t tokens[] = {1, 2, 65535};
    ASSERT_TRUE(writer->append(std::span(tokens).first(2)));
    ASSERT_TRUE(writer->append(std::span(tokens).subspan(2)));
    EXPECT_EQ(writer->count(), 3);
    ASSERT_TRUE(writer->commit());
    EXPECT_EQ(read_or_fail(path), vocab_size == 65536
                                      ? llmc_file<uint16_t>(20240520, 1, 3, {1, 2, 65535})
                                      : llmc_file<uint32_t>(20240801, 7, 3, {1, 2, 65535}));
  }
}

TEST(TokenFileWriter, RoundTripsMoreThanItsBuffer) {
  const ScratchFolder scratch;
  constexpr int32_t kVocab = 100'000;
  std::vector<int32_t> tokens(700'001);
  std::vector<uint8_t> mask(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 7919 % kVocab);
    mask[i] = i % 3 == 0;
  }
  auto writer =
      TokenFileWriter::create(scratch.file("a.bin"), {.vocab_size = kVocab, .with_mask = true});
  ASSERT_TRUE(writer);
  for (size_t begin = 0; begin < tokens.size(); begin += 1000) {
    const size_t size = std::min<size_t>(1000, tokens.size() - begin);
    ASSERT_TRUE(writer->append(std::span(tokens).subspan(begin, size),
                               std::span(mask).subspan(begin, size)));
  }
  ASSERT_TRUE(writer->commit());
  const auto file = TokenFile::open(scratch.file("a.bin"), {.vocab_size = kVocab});
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->check());
  EXPECT_EQ(all_tokens(*file), tokens);
  std::vector<uint8_t> got(mask.size());
  ASSERT_TRUE(file->read_mask(0, got));
  EXPECT_EQ(got, mask);
  std::vector<int32_t> part(5);
  ASSERT_TRUE(file->read(699'996, part));
  EXPECT_EQ(part.back(), tokens.back());
}

TEST(TokenFileWriter, PutsNothingInPlaceWithoutCommit) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  write_or_fail(path, "precious");
  {
    auto writer = TokenFileWriter::create(path, {.vocab_size = 10, .with_mask = true});
    ASSERT_TRUE(writer);
    const int32_t tokens[] = {1, 10};
    EXPECT_FAILS_WITH(writer->append(tokens), Code::kInvalidArgument,
                      "token 1 has id 10, outside the vocabulary of 10");
  }
  {
    auto writer = TokenFileWriter::create(path, {.vocab_size = 10});
    const int32_t negative[] = {-1};
    EXPECT_FAILS_WITH(writer->append(negative), Code::kInvalidArgument, "id -1");
    const int32_t tokens[] = {1, 2};
    const uint8_t mask[] = {1};
    EXPECT_FAILS_WITH(writer->append(tokens, mask), Code::kInvalidArgument, "mask of 1");
  }
  EXPECT_EQ(read_or_fail(path), "precious");
  EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"a.bin"});
  for (const int64_t vocab_size : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_FAILS_WITH(TokenFileWriter::create(path, {.vocab_size = vocab_size}),
                      Code::kInvalidArgument, "vocabulary");
  }
}

TEST(TokenFileWriter, RemovesTheMaskOfAnEarlierFile) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  const int32_t tokens[] = {1, 2, 3};
  const uint8_t mask[] = {0, 1, 1};
  auto masked = TokenFileWriter::create(path, {.vocab_size = 10, .with_mask = true});
  ASSERT_TRUE(masked->append(tokens, mask));
  ASSERT_TRUE(masked->append(tokens));  // no mask: ones
  ASSERT_TRUE(masked->commit());
  const auto file = TokenFile::open(path, {});
  std::vector<uint8_t> got(6);
  ASSERT_TRUE(file->read_mask(0, got));
  EXPECT_EQ(got, (std::vector<uint8_t>{0, 1, 1, 1, 1, 1}));
  auto plain = TokenFileWriter::create(path, {.vocab_size = 10});
  ASSERT_TRUE(plain->append(tokens));
  ASSERT_TRUE(plain->commit());
  EXPECT_FALSE(TokenFile::open(path, {})->has_mask());
}

TEST(TokenFile, FindsTheEndsOfDocuments) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  write_or_fail(path, llmc_file<uint16_t>(20240520, 1, 6, {4, 5, 0, 0, 7, 8}));
  const auto file = TokenFile::open(path, {});
  ASSERT_TRUE(file);
  EXPECT_EQ(file->document_end(0, 0), 3);
  EXPECT_EQ(file->document_end(3, 0), 4);
  EXPECT_EQ(file->document_end(4, 0), 6);  // the last one needs no separator
  EXPECT_EQ(file->document_end(6, 0), 6);
  EXPECT_EQ(file->document_end(0, -1), 6);
  EXPECT_EQ(file->document_end(99, 0), 6);
}

TEST(TokenFile, RefusesEveryKindOfLie) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  const std::string good = llmc_file<uint16_t>(20240520, 1, 3, {5, 6, 7});
  const std::pair<std::string, const char*> kLies[] = {
      {"", "does not begin with a token file header"},
      {good.substr(0, 1023), "does not begin with a token file header"},
      {std::string(2000, 'x'), "does not begin with a token file header"},
      {llmc_file<uint16_t>(20240520, 2, 3, {5, 6, 7}), "version 2"},
      {llmc_file<uint16_t>(20240801, 1, 3, {5, 6, 7}), "magic 20240801"},
      {llmc_file<uint16_t>(20240520, 1, 4, {5, 6, 7}), "says 4 tokens of 2 bytes, but 6"},
      {llmc_file<uint16_t>(20240520, 1, 2, {5, 6, 7}), "says 2 tokens"},
      {llmc_file<uint16_t>(20240520, 1, -1, {5, 6, 7}), "says -1 tokens"},
      {llmc_file<uint16_t>(20240520, 1, INT32_MAX, {5, 6, 7}), "says 2147483647 tokens"},
      {llmc_file<uint16_t>(20240801, 7, 3, {5, 6, 7}), "says 3 tokens of 4 bytes"},
      {good + "x", "but 7 bytes follow"},
      {good.substr(0, good.size() - 1), "truncated"},
  };
  for (const auto& [content, words] : kLies) {
    write_or_fail(path, content);
    EXPECT_FAILS_WITH(TokenFile::open(path, {}), Code::kCorrupt, words);
  }
  write_or_fail(path, "abc");
  EXPECT_FAILS_WITH(TokenFile::open(path, {.layout = TokenLayout::kRawU16}), Code::kCorrupt,
                    "no multiple of 2");
  write_or_fail(path, good);
  EXPECT_FAILS_WITH(TokenFile::open(path, {.layout = TokenLayout::kRawU16}), Code::kInvalidArgument,
                    "layout \"header\"");
  EXPECT_FAILS_WITH(TokenFile::open(scratch.file("no.bin"), {}), Code::kNotFound, "no.bin");
  EXPECT_FAILS_WITH(TokenFile::open(scratch.path(), {}), Code::kInvalidArgument, "is a folder");
}

TEST(TokenFile, NamesTheTokenOutsideTheVocabulary) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  std::vector<uint16_t> tokens(70'000, 9);
  tokens[69'000] = 300;
  write_or_fail(path, llmc_file<uint16_t>(20240520, 1, 70'000, tokens));
  const auto file = TokenFile::open(path, {.vocab_size = 256});
  ASSERT_TRUE(file);
  std::vector<int32_t> out(100);
  EXPECT_TRUE(file->read(0, out));
  EXPECT_FAILS_WITH(file->read(68'950, out), Code::kCorrupt, "token 69000 has id 300");
  EXPECT_FAILS_WITH(file->check(), Code::kCorrupt, "token 69000 has id 300");
  EXPECT_TRUE(TokenFile::open(path, {.vocab_size = 301})->check());

  write_or_fail(path, llmc_file<uint32_t>(20240801, 7, 1, {0xffffffffu}));
  EXPECT_FAILS_WITH(TokenFile::open(path, {})->check(), Code::kCorrupt, "id 4294967295");
}

TEST(TokenFile, RefusesRangesOutsideTheFile) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  write_or_fail(path, llmc_file<uint16_t>(20240520, 1, 3, {5, 6, 7}));
  const auto file = TokenFile::open(path, {});
  std::vector<int32_t> out(2);
  std::vector<uint8_t> mask(2);
  for (const int64_t begin : {int64_t{-1}, int64_t{2}, int64_t{4}, INT64_MAX, INT64_MIN}) {
    EXPECT_FAILS_WITH(file->read(begin, out), Code::kInvalidArgument, "it has 3");
    EXPECT_FAILS_WITH(file->read_mask(begin, mask), Code::kInvalidArgument, "it has 3");
  }
  EXPECT_TRUE(file->read(3, std::span(out).first(0)));
}

TEST(TokenFile, RefusesAMaskThatDoesNotFit) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.bin");
  write_or_fail(path, llmc_file<uint16_t>(20240520, 1, 3, {5, 6, 7}));
  write_or_fail(path + ".mask", "\x01\x01");
  EXPECT_FAILS_WITH(TokenFile::open(path, {}), Code::kCorrupt, "2 bytes for the 3 tokens");
  write_or_fail(path + ".mask", "\x01\x01\x02");
  const auto file = TokenFile::open(path, {});
  ASSERT_TRUE(file) << file.error().message;
  std::vector<uint8_t> mask(3);
  EXPECT_TRUE(file->read_mask(0, std::span(mask).first(2)));
  EXPECT_FAILS_WITH(file->read_mask(0, mask), Code::kCorrupt, "byte 2 is 2");
  EXPECT_FAILS_WITH(file->check(), Code::kCorrupt, "byte 2 is 2");
}

TEST(TokenFile, ReadsLayoutNames) {
  EXPECT_EQ(parse_token_layout("raw-u32").value(), TokenLayout::kRawU32);
  EXPECT_FAILS_WITH(parse_token_layout("u16"), Code::kInvalidArgument, "raw-u16");
}

}  // namespace
}  // namespace jige::formats
