#include "formats/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "formats/test_support.h"
#include "formats/xxhash64.h"

namespace jige::formats {
namespace {

// Writes a checkpoint whose every number is its step.
Status write_step(const std::string& run, int64_t step,
                  const KeptCheckpoints& kept = {.newest = 0}) {
  std::vector<float> weight(300, static_cast<float>(step));
  std::vector<float> moment(300, static_cast<float>(-step));
  CheckpointWriter writer(run, step);
  writer.add("params", "w", TensorView::of(weight.data(), DType::kF32, {100, 3}));
  writer.add("adam_m", "w", TensorView::of(moment.data(), DType::kF32, {100, 3}));
  return writer.commit({{"step", step}, {"cursor", {1, 2}}}, kept);
}

void expect_step(const Result<CheckpointReader>& reader, int64_t step) {
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->step(), step);
  EXPECT_EQ(reader->state().at("step"), step);
  const auto weight = reader->tensor("params", "w");
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_EQ(weight->shape, (Shape{100, 3}));
  EXPECT_EQ(weight->as<float>()[299], static_cast<float>(step));
  EXPECT_EQ(reader->tensor("adam_m", "w")->as<float>()[0], static_cast<float>(-step));
}

std::string step_path(const std::string& run, int64_t step, const std::string& file) {
  return fmt::format("{}/step-{:08}/{}", run, step, file);
}

void flip_byte(const std::string& path, size_t place) {
  std::string content = read_or_fail(path);
  ASSERT_LT(place, content.size());
  content[place] = static_cast<char>(content[place] ^ 1);
  write_or_fail(path, content);
}

TEST(Checkpoint, ComesBackAsItWasWritten) {
  const ScratchFolder scratch;
  const std::string run = scratch.file("runs/one");
  ASSERT_TRUE(write_step(run, 123));
  EXPECT_EQ(folder_entries(run), (std::vector<std::string>{"latest", "step-00000123"}));
  EXPECT_EQ(read_or_fail(run + "/latest"), "step-00000123\n");
  EXPECT_EQ(folder_entries(run + "/step-00000123"),
            (std::vector<std::string>{"adam_m.safetensors", "checksums.xxh64", "params.safetensors",
                                      "state.json"}));
  const auto reader = CheckpointReader::open_latest(run);
  expect_step(reader, 123);
  EXPECT_EQ(find_latest_checkpoint(run).value(), run + "/step-00000123");
  EXPECT_TRUE(reader->has_file("params"));
  EXPECT_FALSE(reader->has_file("adam_v"));
  EXPECT_EQ(reader->tensors("params").size(), 1u);
  EXPECT_TRUE(reader->tensors("adam_v").empty());
  EXPECT_FAILS_WITH(reader->tensor("adam_v", "w"), Code::kNotFound, "adam_v");
  EXPECT_FAILS_WITH(reader->tensor("params", "x"), Code::kNotFound, "\"x\"");
}

TEST(Checkpoint, StreamsSourcesWithoutHoldingThem) {
  const ScratchFolder scratch;
  int calls = 0;
  CheckpointWriter writer(scratch.path(), 1);
  writer.add("params", TensorSource{"w", DType::kF32, {4, 2}, [&](const RowSink& sink) -> Status {
                                      for (int row = 0; row < 4; ++row, ++calls) {
                                        float buffer[2] = {static_cast<float>(row), 0.5f};
                                        JIGE_DO(sink(TensorView::of(buffer, DType::kF32, {1, 2})));
                                      }
                                      return {};
                                    }});
  EXPECT_EQ(calls, 0);
  ASSERT_TRUE(writer.commit(nullptr));
  EXPECT_EQ(calls, 4);
  const auto reader = CheckpointReader::open_latest(scratch.path());
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->tensor("params", "w")->as<float>()[6], 3.0f);
  EXPECT_TRUE(reader->state().is_null());
}

TEST(Checkpoint, KeepsTheNewestAndReplacesAStepThatIsWrittenAgain) {
  const ScratchFolder scratch;
  for (const int64_t step : {1, 2, 3, 4, 4, 5})
    ASSERT_TRUE(write_step(scratch.path(), step, {.newest = 2}));
  EXPECT_EQ(folder_entries(scratch.path()),
            (std::vector<std::string>{"latest", "step-00000004", "step-00000005"}));
  expect_step(CheckpointReader::open_latest(scratch.path()), 5);
}

TEST(Checkpoint, KeepsAStepBesidesTheNewest) {
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20, 30, 40}) {
    ASSERT_TRUE(write_step(scratch.path(), step, {.newest = 1, .step = 20}));
  }
  EXPECT_EQ(folder_entries(scratch.path()),
            (std::vector<std::string>{"latest", "step-00000020", "step-00000040"}));
  ASSERT_TRUE(write_step(scratch.path(), 50, {.newest = 2, .step = 50}));
  EXPECT_EQ(folder_entries(scratch.path()),
            (std::vector<std::string>{"latest", "step-00000040", "step-00000050"}));
}

TEST(Checkpoint, GoesBackWhereLatestSaysSoAndKeepsItsHandsOffTheFuture) {
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(write_step(scratch.path(), step));
  write_or_fail(scratch.file("latest"), "step-00000010\n");
  expect_step(CheckpointReader::open_latest(scratch.path()), 10);
  ASSERT_TRUE(write_step(scratch.path(), 15, {.newest = 1}));
  expect_step(CheckpointReader::open_latest(scratch.path()), 15);
  EXPECT_EQ(
      folder_entries(scratch.path()),
      (std::vector<std::string>{"latest", "step-00000015", "step-00000020", "step-00000030"}));
}

TEST(Checkpoint, FallsBackToTheNewestIntactOne) {
  const ScratchFolder scratch;
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(write_step(scratch.path(), step));
  flip_byte(step_path(scratch.path(), 3, "params.safetensors"), 500);
  testing::internal::CaptureStderr();
  expect_step(CheckpointReader::open_latest(scratch.path()), 2);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("step-00000003/params.safetensors"), std::string::npos) << log;
  EXPECT_NE(log.find("damaged"), std::string::npos) << log;
  EXPECT_NE(log.find("continuing from the older"), std::string::npos) << log;

  flip_byte(step_path(scratch.path(), 2, "state.json"), 30);
  std::filesystem::resize_file(step_path(scratch.path(), 1, "adam_m.safetensors"), 100);
  const auto none = CheckpointReader::open_latest(scratch.path());
  EXPECT_FAILS_WITH(none, Code::kCorrupt, "no checkpoint is intact");
  EXPECT_FAILS_WITH(none, Code::kCorrupt, "step-00000003");
}

TEST(Checkpoint, ManagesWithoutTheLatestPointer) {
  const ScratchFolder scratch;
  EXPECT_FAILS_WITH(CheckpointReader::open_latest(scratch.path()), Code::kNotFound,
                    "holds no checkpoint");
  EXPECT_FAILS_WITH(find_latest_checkpoint("/nowhere"), Code::kNotFound, "/nowhere");
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(write_step(scratch.path(), step));
  for (const char* pointer : {"", "nonsense\n", "../step-00000001", "step-0000000x"}) {
    write_or_fail(scratch.file("latest"), pointer);
    expect_step(CheckpointReader::open_latest(scratch.path()), 3);
  }
  std::filesystem::remove(scratch.file("latest"));
  expect_step(CheckpointReader::open_latest(scratch.path()), 3);
  write_or_fail(scratch.file("latest"), "step-00000099\n");  // names one that is gone
  expect_step(CheckpointReader::open_latest(scratch.path()), 3);
}

TEST(Checkpoint, ReadsACopyMovedAsideByAReplacementThatWasKilled) {
  const ScratchFolder scratch;
  ASSERT_TRUE(write_step(scratch.path(), 7));
  std::filesystem::rename(scratch.file("step-00000007"), scratch.file("step-00000007.old"));
  expect_step(CheckpointReader::open_latest(scratch.path()), 7);
  ASSERT_TRUE(write_step(scratch.path(), 8));
  EXPECT_TRUE(std::filesystem::exists(scratch.file("step-00000007.old")));  // still the only 7
  ASSERT_TRUE(write_step(scratch.path(), 7));
  ASSERT_TRUE(write_step(scratch.path(), 9));
  EXPECT_FALSE(std::filesystem::exists(scratch.file("step-00000007.old")));
}

TEST(Checkpoint, ClearsTheRemainsOfKilledWritersAndNothingElse) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.file(".write-step-00000001.abcdef"));
  write_or_fail(scratch.file(".write-step-00000001.abcdef/params.safetensors"), "half");
  write_or_fail(scratch.file("latest.Ab12_x"), "half");
  write_or_fail(scratch.file("latest-notes.txt"), "mine");
  write_or_fail(scratch.file("log.jsonl"), "mine");
  // A person's own things whose names look much like remains.
  std::filesystem::create_directories(scratch.file("latest.backup"));
  write_or_fail(scratch.file("latest.backup/params.safetensors"), "mine");
  write_or_fail(scratch.file("step-sizes.txt"), "mine");
  write_or_fail(scratch.file("step-sizes.txt.old"), "mine");
  ASSERT_TRUE(write_step(scratch.path(), 2));
  EXPECT_EQ(folder_entries(scratch.path()),
            (std::vector<std::string>{"latest", "latest-notes.txt", "latest.backup", "log.jsonl",
                                      "step-00000002", "step-sizes.txt", "step-sizes.txt.old"}));
  EXPECT_EQ(read_or_fail(scratch.file("latest.backup/params.safetensors")), "mine");
}

TEST(Checkpoint, LeavesTheRunAsItWasWhenASourceFails) {
  const ScratchFolder scratch;
  ASSERT_TRUE(write_step(scratch.path(), 1));
  CheckpointWriter writer(scratch.path(), 2);
  std::vector<float> data(10);
  writer.add("params", "w", TensorView::of(data.data(), DType::kF32, {10}));
  writer.add("adam_m", TensorSource{"w", DType::kF32, {10}, [](const RowSink&) -> Status {
                                      return fail(Code::kUnavailable, "device lost");
                                    }});
  EXPECT_FAILS_WITH(writer.commit({}), Code::kUnavailable, "device lost");
  EXPECT_EQ(folder_entries(scratch.path()), (std::vector<std::string>{"latest", "step-00000001"}));
  expect_step(CheckpointReader::open_latest(scratch.path()), 1);

  CheckpointWriter outside(scratch.path(), 3);
  outside.add("../escape", "w", TensorView::of(data.data(), DType::kF32, {10}));
  EXPECT_FAILS_WITH(outside.commit({}), Code::kInvalidArgument, "../escape");
  EXPECT_FAILS_WITH(CheckpointWriter(scratch.path(), -1).commit({}), Code::kInvalidArgument,
                    "step -1");
  EXPECT_FAILS_WITH(CheckpointWriter(scratch.path(), 100'000'000).commit({}),
                    Code::kInvalidArgument, "step 100000000");
}

// Every byte of every file is covered by a checksum, the checksums by their use.
TEST(Checkpoint, NoticesAnyFlippedByteAndAnyTruncation) {
  const ScratchFolder scratch;
  ASSERT_TRUE(write_step(scratch.path(), 1));
  const std::string folder = scratch.file("step-00000001");
  for (const std::string& name : folder_entries(folder)) {
    const std::string path = folder + "/" + name;
    const std::string whole = read_or_fail(path);
    for (size_t place = 0; place < whole.size(); place += 1 + whole.size() / 60) {
      std::string damaged = whole;
      damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
      write_or_fail(path, damaged);
      EXPECT_FALSE(CheckpointReader::open(folder)) << name << " byte " << place;
      write_or_fail(path, whole.substr(0, place));
      EXPECT_FALSE(CheckpointReader::open(folder)) << name << " cut at " << place;
    }
    std::filesystem::remove(path);
    EXPECT_FAILS_WITH(CheckpointReader::open(folder), Code::kNotFound, name);
    write_or_fail(path, whole);
  }
  expect_step(CheckpointReader::open(folder), 1);
}

TEST(Checkpoint, RefusesStatesThatAreWellSummedButWrong) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("step-00000001");
  std::filesystem::create_directory(folder);
  const auto open_with = [&](const std::string& state) {
    write_or_fail(folder + "/state.json", state);
    write_or_fail(folder + "/checksums.xxh64",
                  checksum_text(xxhash64(bytes_of(state))) + "  state.json\n");
    return CheckpointReader::open(folder);
  };
  const std::string good = R"({"format": "jige-checkpoint", "version": 1, "step": 1, "state": {}})";
  EXPECT_TRUE(open_with(good));
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_FAILS_WITH(open_with("[]"), Code::kCorrupt, "JSON object");
  EXPECT_FAILS_WITH(open_with("{}"), Code::kNotFound, "\"format\"");
  EXPECT_FAILS_WITH(open_with(replaced("jige-checkpoint", "other")), Code::kCorrupt, "\"other\"");
  EXPECT_FAILS_WITH(open_with(replaced("\"version\": 1", "\"version\": 2")), Code::kUnsupported,
                    "version 2");
  EXPECT_FAILS_WITH(open_with(replaced("\"step\": 1", "\"step\": -1")), Code::kCorrupt, "\"step\"");
  EXPECT_FAILS_WITH(open_with(replaced("\"step\": 1", "\"step\": 1e15")), Code::kCorrupt, "step");
  EXPECT_FAILS_WITH(open_with(replaced("\"step\": 1", "\"step\": null")), Code::kNotFound, "step");
  EXPECT_FAILS_WITH(open_with(replaced(", \"state\": {}", "")), Code::kNotFound, "\"state\"");
}

TEST(Checkpoint, RefusesChecksumFilesThatLie) {
  const std::string sum(16, '0');
  const std::pair<std::string, const char*> kLies[] = {
      {"x", "line 1"},
      {sum + "  state.json", "line 1"},  // no newline: truncated
      {sum + " state.json\n", "line 1"},
      {sum + "  \n", "line 1"},
      {sum.substr(1) + "g  a\n", "line 1"},
      {"-" + sum.substr(1) + "  a\n", "line 1"},
      {sum + "  ../a.safetensors\n", "line 1"},
      {sum + "  .hidden\n", "line 1"},
      {sum + "  a.safetensors\n\n", "line 2"},
      {sum + "  a.safetensors\n" + sum + "  a.safetensors\n", "twice"},
  };
  for (const auto& [text, words] : kLies) {
    EXPECT_FAILS_WITH(parse_checksums(text, "checksums.xxh64"), Code::kCorrupt, words);
  }
  const auto good = parse_checksums("00000000000000ff  a.safetensors\n", "x");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->at(0), (std::pair<std::string, uint64_t>{"a.safetensors", 255}));

  const ScratchFolder scratch;
  write_or_fail(scratch.file("checksums.xxh64"), sum + "  passwd\n");
  EXPECT_FAILS_WITH(CheckpointReader::open(scratch.path()), Code::kCorrupt, "no file of a");
  write_or_fail(scratch.file("checksums.xxh64"), "");
  EXPECT_FAILS_WITH(CheckpointReader::open(scratch.path()), Code::kCorrupt, "state.json");
}

TEST(Checkpoint, IsLinkedIntoAnotherRunUnderAnotherState) {
  const ScratchFolder scratch;
  const std::string run = scratch.file("run"), other = scratch.file("other/run");
  ASSERT_TRUE(write_step(run, 5));
  const auto reader = CheckpointReader::open_latest(run);
  ASSERT_TRUE(reader);
  ASSERT_TRUE(link_checkpoint(*reader, other, {{"step", 5}, {"cursor", "another"}}));
  const auto linked = CheckpointReader::open_latest(other);
  expect_step(linked, 5);
  EXPECT_EQ(linked->state().at("cursor"), "another");
  EXPECT_EQ(reader->state().at("cursor"), Json({1, 2})) << "that of the first stays";
  EXPECT_EQ(std::filesystem::hard_link_count(step_path(run, 5, "params.safetensors")), 2u);
  // What becomes of the first does not touch the other.
  std::filesystem::remove_all(run);
  expect_step(CheckpointReader::open_latest(other), 5);
}

}  // namespace
}  // namespace jige::formats
