#include "train/line_reader.h"

#include <gtest/gtest.h>

#include "train/test_support.h"

namespace jige::train {
namespace {

struct Piece {
  std::string text;
  int64_t number;
  bool begins;
  bool ends;
  bool operator==(const Piece&) const = default;
};

std::vector<Piece> read_pieces(const std::string& path, size_t limit) {
  auto reader = LineReader::open(path, limit);
  EXPECT_TRUE(reader);
  std::vector<Piece> pieces;
  Line line;
  for (;;) {
    const auto more = reader->next(line);
    EXPECT_TRUE(more);
    if (!more || !*more) break;
    pieces.push_back({std::string(line.text), line.number, line.begins, line.ends});
  }
  EXPECT_EQ(reader->bytes_read(), static_cast<int64_t>(std::filesystem::file_size(path)));
  return pieces;
}

TEST(LineReader, GivesLinesWithNumbersAndWithoutEndings) {
  const TestFolder folder;
  const std::vector<Piece> expected = {{"one", 1, true, true},
                                       {"", 2, true, true},
                                       {"three", 3, true, true},
                                       {"last", 4, true, true}};
  EXPECT_EQ(read_pieces(folder.write("a", "one\n\nthree\r\nlast"), 100), expected);
}

TEST(LineReader, HasNothingToSayAboutAnEmptyFile) {
  const TestFolder folder;
  EXPECT_TRUE(read_pieces(folder.write("a", ""), 100).empty());
}

TEST(LineReader, CutsLongLinesBetweenCharacters) {
  const TestFolder folder;
  // "é" has two bytes; a limit of 5 falls into the third of them.
  const std::vector<Piece> expected = {{"éé", 1, true, false},
                                       {"éé", 1, false, false},
                                       {"é", 1, false, true},
                                       {"ab", 2, true, true}};
  EXPECT_EQ(read_pieces(folder.write("a", "ééééé\nab\n"), 5), expected);
}

TEST(LineReader, CutsLinesThatAreLongerThanOneRead) {
  const TestFolder folder;
  const std::string text(3 * (size_t{1} << 20) + 5, 'x');
  const auto pieces = read_pieces(folder.write("a", text + "\nend"), size_t{1} << 20);
  ASSERT_EQ(pieces.size(), 5u);
  EXPECT_EQ(pieces[3], (Piece{"xxxxx", 1, false, true}));
  EXPECT_EQ(pieces[4], (Piece{"end", 2, true, true}));
}

TEST(LineReader, NamesAFileThatIsNotThere) {
  const auto reader = LineReader::open("/nowhere/file.txt", 100);
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().code, Code::kNotFound);
  EXPECT_NE(reader.error().message.find("/nowhere/file.txt"), std::string::npos);
}

TEST(LineReader, RefusesAFolder) {
  const TestFolder folder;
  const auto reader = LineReader::open(folder.path(), 100);
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().code, Code::kInvalidArgument);
  EXPECT_NE(reader.error().message.find(folder.path() + ": is a folder; name files, such as " +
                                        folder.path() + "/*.txt"),
            std::string::npos);
  folder.write("b.md", "b");
  folder.write("c.jsonl", "{}");
  folder.write(".a.csv", "a");
  EXPECT_TRUE(folder_is_no_data(folder.path()).value().message.ends_with("/*.md"));
}

}  // namespace
}  // namespace jige::train
