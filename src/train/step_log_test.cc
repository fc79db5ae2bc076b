#include "train/step_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/process_memory.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

TEST(StepLog, WritesOneRecordALine) {
  const TestFolder folder;
  auto log = StepLog::open(folder.file("log"), 0);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->write({{"step", 1}}));
  ASSERT_TRUE(log->write({{"note", "two\nlines"}}));
  ASSERT_TRUE(log->sync());
  const auto text = read_file(folder.file("log"));
  EXPECT_EQ(*text, "{\"step\":1}\n{\"note\":\"two\\nlines\"}\n");
  EXPECT_EQ(log->size(), static_cast<int64_t>(text->size()));
}

TEST(StepLog, CutsWhatTheCheckpointDoesNotKnow) {
  const TestFolder folder;
  const auto path = folder.write("log", "{\"step\":1}\n{\"step\":2}\n{\"st");
  auto log = StepLog::open(path, 11);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->write({{"step", 3}}));
  EXPECT_EQ(*read_file(path), "{\"step\":1}\n{\"step\":3}\n");
}

TEST(StepLog, GoesOnAtTheEndOfAShorterFile) {
  const TestFolder folder;
  const auto path = folder.write("log", "ab\n");
  auto log = StepLog::open(path, 1000);
  ASSERT_TRUE(log);
  EXPECT_EQ(log->size(), 3);
  ASSERT_TRUE(log->write(1));
  EXPECT_EQ(*read_file(path), "ab\n1\n");
}

TEST(StepLog, KeepsTheBitsOfNumbers) {
  const TestFolder folder;
  auto log = StepLog::open(folder.file("log"), 0);
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 2.0000000000000004}) {
    ASSERT_TRUE(log->write(value));
    const auto text = read_file(folder.file("log"));
    const size_t begin = text->rfind('\n', text->size() - 2) + 1;
    EXPECT_EQ(parse_json(text->substr(begin), "log")->get<double>(), value);
  }
}

TEST(StepLog, ReportsAFullDisk) {
  auto log = StepLog::open("/dev/full", 0);
  ASSERT_TRUE(log);
  const Status written = log->write(1);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::kExhausted);
  EXPECT_NE(written.error().message.find("/dev/full"), std::string::npos);
}

TEST(StepLog, NamesAFolderThatIsNotThere) {
  const auto log = StepLog::open("/nowhere/log.jsonl", 0);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().message.find("/nowhere/log.jsonl"), std::string::npos);
}

TEST(ProcessMemory, IsPlausible) {
  EXPECT_GT(process_peak_bytes(), int64_t{1} << 20);
  EXPECT_GT(process_private_bytes(), int64_t{1} << 18);
  EXPECT_LE(process_private_bytes(), process_peak_bytes());
  EXPECT_GT(machine_memory_bytes(), process_peak_bytes());
}

TEST(ProcessMemory, GrowsByWhatIsTouched) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = process_private_bytes();
  const std::vector<char> touched(kBytes, 'x');
  const int64_t grown = process_private_bytes() - before;
  EXPECT_GT(grown, kBytes / 8 * 7);
  EXPECT_LT(grown, kBytes / 8 * 9);
}

TEST(ProcessMemory, OfTheHeapGoesBackWhereMuchCameFree) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "another heap";
#else
  constexpr size_t kBlock = size_t{64} << 10;
  constexpr int64_t kBlocks = 512;
  const int64_t free_before = free_heap_bytes();
  std::vector<std::string> blocks(kBlocks, std::string(kBlock, 'x'));
  // Else the heap would end where the blocks begin; one or two may stand in gaps in front of them.
  const std::vector<std::string> behind(8, std::string(kBlock, 'y'));
  blocks.clear();
  const int64_t held = process_private_bytes();
  ASSERT_GT(held, kBlocks * static_cast<int64_t>(kBlock)) << "it went back by itself";
  return_freed_memory(free_heap_bytes());
  EXPECT_GT(process_private_bytes(), held - (int64_t{1} << 20)) << "nothing came free since";
  return_freed_memory(free_before);
  EXPECT_LT(process_private_bytes(), held - kBlocks / 2 * static_cast<int64_t>(kBlock));
#endif
}

}  // namespace
}  // namespace jige::train
