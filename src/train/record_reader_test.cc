#include "train/record_reader.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

struct Seen {
  std::string text;
  bool begins = true;
  bool ends = true;
  bool operator==(const Seen&) const = default;
};

struct Reading {
  std::vector<Seen> records;
  std::vector<int64_t> lines;
  int64_t skipped = 0;
  std::vector<int64_t> forced_lines;
  std::string error;
};

Reading read_all(const std::string& path, const RecordOptions& options = {}) {
  Reading reading;
  auto reader = RecordReader::open(path, options);
  EXPECT_TRUE(reader);
  Record record;
  for (;;) {
    const auto more = reader->next(record);
    if (!more) reading.error = more.error().message;
    if (!more || !*more) break;
    reading.records.push_back({record.text, record.begins, record.ends});
    reading.lines.push_back(record.line);
  }
  reading.skipped = reader->skipped_count();
  reading.forced_lines = reader->forced_lines();
  return reading;
}

TEST(RecordReader, ReadsATextFileAsOneDocument) {
  const TestFolder folder;
  const auto reading = read_all(folder.write("a.txt", "one\n\ntwo\r\nthree\n"));
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"one\n\ntwo\nthree"}}));
}

TEST(RecordReader, PassesOverAByteOrderMark) {
  const TestFolder folder;
  const auto path = folder.write("a.txt", "\xef\xbb\xbf--\r\none \xef\xbb\xbf\r\n");
  const auto reading = read_all(path, {.split = TextSplit::kSeparator, .separator = "--"});
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"one \xef\xbb\xbf"}}));
  const auto whole = read_all(folder.write("b.txt", "\xef\xbb\xbfone\n"));
  EXPECT_EQ(whole.records, (std::vector<Seen>{{"one"}}));
}

TEST(RecordReader, SplitsAtBlankLinesWhereAsked) {
  const TestFolder folder;
  const auto path = folder.write("a.txt", "\n \none\nstill one\n\n \t\ntwo\n\n");
  const auto reading = read_all(path, {.split = TextSplit::kBlankLines});
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"one\nstill one"}, {"two"}}));
  EXPECT_EQ(reading.lines, (std::vector<int64_t>{3, 7}));
}

TEST(RecordReader, SplitsAtSeparatorLinesWhereAsked) {
  const TestFolder folder;
  const auto path = folder.write("a.txt", "one\n\nmore\n<|end|>\n<|end|> \n two <|end|>\n");
  const auto reading = read_all(path, {.split = TextSplit::kSeparator, .separator = "<|end|>"});
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"one\n\nmore"}, {" two <|end|>"}}));
}

TEST(RecordReader, LeavesOutDocumentsOfWhiteSpace) {
  const TestFolder folder;
  EXPECT_TRUE(read_all(folder.write("a.txt", "")).records.empty());
  EXPECT_TRUE(read_all(folder.write("b.txt", " \n\n\t\n")).records.empty());
  EXPECT_TRUE(read_all(folder.write("c.txt", std::string(size_t{3} << 20, '\n'))).records.empty());
}

TEST(RecordReader, GivesLongDocumentsInPieces) {
  const TestFolder folder;
  const std::string line(400000, 'x');
  const auto path = folder.write("a.txt", line + "\n" + line + "\n" + line + "\n\nnext\n\n" + line +
                                              "\n" + line + "\n" + line);
  const auto reading = read_all(path, {.split = TextSplit::kBlankLines});
  ASSERT_EQ(reading.records.size(), 5u);
  EXPECT_EQ(reading.records[0], (Seen{line + "\n" + line + "\n" + line + "\n", true, false}));
  EXPECT_EQ(reading.records[1], (Seen{"", false, true}));
  EXPECT_EQ(reading.records[2], (Seen{"next"}));
  EXPECT_FALSE(reading.records[3].ends);
  EXPECT_EQ(reading.records[4], (Seen{"", false, true}));
}

TEST(RecordReader, JoinsPiecesOfAVeryLongLine) {
  const TestFolder folder;
  std::string text;
  while (text.size() < 2 * kPieceBytes + 17) text += "é€x";
  const auto reading = read_all(folder.write("a.txt", text));
  std::string joined;
  for (const Seen& record : reading.records) joined += record.text;
  EXPECT_EQ(joined, text);
  EXPECT_TRUE(reading.records.front().begins);
  EXPECT_TRUE(reading.records.back().ends);
}

TEST(RecordReader, EndsPiecesWhereItIsToldTo) {
  const TestFolder folder;
  std::string text;
  while (text.size() < 3 * kPieceBytes) text += "words of a line\n";
  int asked = 0;
  const RecordOptions options{
      .piece_end = [&](std::string_view seen, bool continues) -> std::optional<size_t> {
        EXPECT_EQ(continues, asked > 1);
        if (asked++ == 0) return std::nullopt;
        return seen.size() - 7;
      }};
  const auto reading = read_all(folder.write("a.txt", text), options);
  ASSERT_EQ(reading.records.size(), 3u);
  EXPECT_GT(reading.records[0].text.size(), 2 * kPieceBytes - 8);
  EXPECT_EQ(reading.records[0].text.substr(reading.records[0].text.size() - 9), "words of ");
  std::string joined;
  for (const Seen& record : reading.records) joined += record.text;
  EXPECT_EQ(joined + "\n", text);
  EXPECT_EQ(reading.lines[1],
            1 + std::count(reading.records[0].text.begin(), reading.records[0].text.end(), '\n'));
}

TEST(RecordReader, CutsWhatNobodyCanCutBeforeItIsTooLong) {
  const TestFolder folder;
  const std::string text(kUncutBytesMax + kPieceBytes, 'x');
  const auto reading =
      read_all(folder.write("a.txt", text),
               {.piece_end = [](std::string_view, bool) { return std::optional<size_t>(); }});
  ASSERT_EQ(reading.records.size(), 2u);
  EXPECT_EQ(reading.records[0].text.size(), kUncutBytesMax);
  EXPECT_EQ(reading.records[1].text.size(), kPieceBytes);
  EXPECT_EQ(reading.forced_lines, std::vector<int64_t>{1});
}

TEST(RecordReader, NamesFileAndLineOfInvalidUtf8) {
  const TestFolder folder;
  const auto path = folder.write("a.txt",
                                 "fine\nb\xFF\xFE"
                                 "d\nfine too\n");
  EXPECT_NE(read_all(path).error.find("a.txt:2"), std::string::npos);
  const auto reading = read_all(path, {.skip_bad = true});
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"fine\nfine too"}}));
  EXPECT_EQ(reading.skipped, 1);
}

TEST(RecordReader, SaysHowTextInAnotherEncodingIsConverted) {
  const TestFolder folder;
  EXPECT_NE(read_all(folder.write("a.txt", "f\xFCr\n")).error.find("`iconv -f ENCODING"),
            std::string::npos);
  for (const char* name : {"a.txt", "a.jsonl"}) {
    const auto path = folder.write(name, std::string("\xFF\xFE{\0}\0\n\0", 8));
    EXPECT_NE(read_all(path).error.find(":1: is not valid UTF-8; it looks like UTF-16"),
              std::string::npos)
        << name;
    EXPECT_EQ(read_all(path, {.skip_bad = true}).error, "");
  }
}

TEST(RecordReader, TellsPackedFilesByWhatTheyBeginWith) {
  const TestFolder folder;
  for (const std::string_view magic : {"\x1f\x8b\x08", "PK\x03\x04", "\x28\xb5\x2f\xfd",
                                       "\xfd"
                                       "7zXZ",
                                       "BZh91AY&SY", "7z\xbc\xaf\x27\x1c"}) {
    for (const char* name : {"a.txt", "a.jsonl"}) {
      for (const bool skip_bad : {false, true}) {
        const auto path = folder.write(name, std::string(magic) + std::string("\0\xff\n{}\n", 6));
        EXPECT_EQ(read_all(path, {.skip_bad = skip_bad}).error,
                  path + ": is a packed file; unpack it first");
      }
    }
  }
  EXPECT_EQ(read_all(folder.write("b.txt", "PK and BZh\n")).error, "");
}

TEST(RecordReader, GivesJsonLinesAndSkipsBlankOnes) {
  const TestFolder folder;
  const auto reading = read_all(folder.write("a.jsonl", "{\"text\":1}\n\n  \n[2]\r\n"));
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"{\"text\":1}"}, {"[2]"}}));
  EXPECT_EQ(reading.lines, (std::vector<int64_t>{1, 4}));
}

TEST(RecordReader, KnowsFilesByTheirNames) {
  EXPECT_EQ(*source_kind("a/b.JSONL"), SourceKind::kJsonl);
  EXPECT_EQ(*source_kind("b.bin"), SourceKind::kTokens);
  EXPECT_EQ(*source_kind("README"), SourceKind::kText);
  EXPECT_EQ(*source_kind("a.gz/notes"), SourceKind::kText);
  for (const char* refused : {"a.parquet", "a.json", "a.jsonl.gz", "a.zip"}) {
    const auto kind = source_kind(refused);
    ASSERT_FALSE(kind) << refused;
    EXPECT_EQ(kind.error().code, Code::kUnsupported);
  }
  for (const char* table : {"a.csv", "b.TSV", "c.json"}) {
    const std::string said = source_kind(table).error().message;
    EXPECT_NE(said.find(table + std::string(" > data.jsonl`")), std::string::npos) << said;
  }
  EXPECT_NE(source_kind("b.TSV").error().message.find("delimiter=\"\\t\""), std::string::npos);
}

// Whatever bytes a file has, reading ends, and with skip_bad it never fails.
TEST(RecordReader, SurvivesAnyBytes) {
  const TestFolder folder;
  Rng rng(17);
  for (uint64_t round = 0; round < fuzz_rounds(60); ++round) {
    std::string bytes(rng.below(400), ' ');
    for (char& c : bytes) {
      c = rng.below(3) == 0 ? "\n\r \t{}"[rng.below(6)] : static_cast<char>(rng.below(256));
    }
    const auto path = folder.write(round % 2 == 0 ? "a.txt" : "a.jsonl", bytes);
    for (const TextSplit split :
         {TextSplit::kFile, TextSplit::kBlankLines, TextSplit::kSeparator}) {
      const auto reading = read_all(path, {.split = split, .separator = "{", .skip_bad = true});
      EXPECT_EQ(reading.error, "") << "round " << round;
      bool open = false;
      for (const Seen& record : reading.records) {
        EXPECT_EQ(record.begins, !open);
        open = !record.ends;
      }
      EXPECT_FALSE(open);
    }
  }
}

}  // namespace
}  // namespace jige::train
