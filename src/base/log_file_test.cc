#include "base/log_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/test_path.h"

namespace jige {
namespace {

// In a folder of its own.
std::string new_path() {
  const std::string folder = test_path("log-file");
  EXPECT_TRUE(make_folders(folder));
  return folder + "/log";
}

TEST(LogFile, KeepsTheLastLinesInTwoFiles) {
  const std::string path = new_path();
  {
    Result<LogFile> log = LogFile::open(path, 12);
    ASSERT_TRUE(log);
    for (const char* line : {"one", "two", "three", "four", "five"}) ASSERT_TRUE(log->append(line));
  }
  // One and two are 8 bytes and three takes 6; three and four are 11.
  EXPECT_EQ(*read_file(path), "five\n");
  EXPECT_EQ(*read_file(path + ".1"), "three\nfour\n");
  Result<LogFile> again = LogFile::open(path, 12);
  ASSERT_TRUE(again);
  ASSERT_TRUE(again->append("six"));
  EXPECT_EQ(*read_log(path), "three\nfour\nfive\nsix\n");
  // One that is longer than the limit is written all the same.
  ASSERT_TRUE(again->append("a line of more than twelve"));
  EXPECT_EQ(*read_log(path), "five\nsix\na line of more than twelve\n");
}

TEST(LogFile, ReadsWhatIsThere) {
  const std::string path = new_path();
  EXPECT_EQ(read_log(path).error().code, Code::kNotFound);
  // As after a crash between the two steps of beginning anew.
  ASSERT_TRUE(write_file_atomic(path + ".1", "old\n"));
  EXPECT_EQ(*read_log(path), "old\n");
}

TEST(LogFile, GoesOnBehindALineThatWasCutShort) {
  const std::string path = new_path();
  ASSERT_TRUE(write_file_atomic(path, "one\ntw"));
  Result<LogFile> log = LogFile::open(path, 100);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->append("three"));
  ASSERT_TRUE(log->append("four"));
  EXPECT_EQ(*read_file(path), "one\ntw\nthree\nfour\n");
}

TEST(LogFile, SurvivesTheLossOfItsFile) {
  const std::string path = new_path();
  Result<LogFile> log = LogFile::open(path, 8);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->append("one"));
  std::filesystem::remove(path);
  ASSERT_TRUE(log->append("three"));
  EXPECT_EQ(*read_log(path), "three\n");
}

TEST(LogFile, NamesTheFileThatCannotBeWritten) {
  const std::string path = new_path();
  std::filesystem::create_directories(path + ".1/full");
  Result<LogFile> log = LogFile::open(path, 5);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->append("one"));
  const Status status = log->append("two");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(path + ".1: "), std::string::npos);
}

// Its name is not ours to give away: as /dev/null, which is there for all.
TEST(LogFile, LeavesWhatIsNoPlainFileWhereItIs) {
  const std::string path = new_path();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Result<LogFile> log = LogFile::open(path, 5);
  ASSERT_TRUE(log);
  for (const char* line : {"one", "two", "three"}) ASSERT_TRUE(log->append(line));
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

}  // namespace
}  // namespace jige
