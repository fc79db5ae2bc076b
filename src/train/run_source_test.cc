// That a run goes on from the model it was begun from, and from no other.

#include "train/run_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "formats/xxhash64.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

Status train_source(const TrainOptions& options) {
  JIGE_TRY(const auto trainer, Trainer::create(options));
  JIGE_DO(trainer->run());
  return {};
}

// Two models of one step each, in base1/model and base2/model. Returns the options of the second.
TrainOptions two_bases(const TestFolder& folder) {
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(30))});
  options.steps = 1;
  for (const uint64_t seed : {1, 2}) {
    options.seed = seed;
    options.out_folder = folder.file("base" + std::to_string(seed));
    EXPECT_TRUE(train_source(options));
  }
  return options;
}

TEST(RunSource, GoesOnOnlyFromTheModelThatTheRunWasBegunFrom) {
  const TestFolder folder;
  const TrainOptions options = two_bases(folder);
  const std::string one = folder.file("base1/model");
  const TrainOptions begun = tuning_options(options, one, folder.file("tuned"));
  ASSERT_TRUE(train_source(begun));
  EXPECT_EQ(recorded_source(begun.out_folder), one);
  EXPECT_EQ(recorded_source(options.out_folder), "");
  EXPECT_EQ(recorded_source(folder.file("nowhere")), "");

  const auto error_of = [&](TrainOptions changed, const std::string& out) {
    changed.out_folder = folder.file(out);
    const Status run = train_source(changed);
    EXPECT_TRUE(run || run.error().code == Code::kInvalidArgument);
    return run ? std::string() : run.error().message;
  };
  TrainOptions other = begun;
  other.init_folder = folder.file("base2/model");
  EXPECT_THAT(error_of(other, "tuned"),
              testing::AllOf(testing::HasSubstr(one), testing::HasSubstr(other.init_folder),
                             testing::HasSubstr("the old --from")));
  EXPECT_THAT(error_of(options, "tuned"), testing::HasSubstr("was begun from the model in " + one));
  EXPECT_THAT(error_of(begun, "base2"), testing::HasSubstr("was begun with a new model"));
  // The same folder by another name, and the same weights in another folder.
  TrainOptions same = begun;
  same.init_folder = folder.file("base1/../base1/model/");
  EXPECT_EQ(error_of(same, "tuned"), "");
  std::filesystem::rename(one, folder.file("moved"));
  same.init_folder = folder.file("moved");
  EXPECT_EQ(error_of(same, "tuned"), "");
}

TEST(RunSource, OfAnAdapterIsTheBaseItWasBegunOn) {
  const TestFolder folder;
  const TrainOptions options = two_bases(folder);
  const std::string one = folder.file("base1/model"), two = folder.file("base2/model");
  TrainOptions begun = tuning_options(options, one, folder.file("tuned"));
  begun.lora = formats::LoraConfig{.rank = 2, .alpha = 4};
  ASSERT_TRUE(train_source(begun));
  EXPECT_EQ(recorded_source(begun.out_folder), "");
  TrainOptions other = begun;
  other.init_folder = two;
  const Status refused = train_source(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(testing::HasSubstr(folder.file("tuned/checkpoints/step-00000001: ")),
                             testing::HasSubstr("was trained on the model in " + one + ", "),
                             testing::HasSubstr("the model in " + two + " has other weights"),
                             testing::HasSubstr("with --from, or start anew")));
  // A base that has moved is known by its weights; another one in its place is not the same.
  std::filesystem::rename(one, folder.file("moved"));
  std::filesystem::rename(two, one);
  const Status replaced = train_source(begun);
  ASSERT_FALSE(replaced);
  EXPECT_THAT(replaced.error().message,
              testing::HasSubstr("in " + one + ", whose weights are no longer the same"));
  begun.init_folder = folder.file("moved");
  const Status moved = train_source(begun);
  EXPECT_TRUE(moved) << moved.error().message;
}

TEST(RunSource, OfAnAdapterIsToldAsTheFlagsThatGoOnWithIt) {
  const TestFolder folder;
  const TrainOptions options = two_bases(folder);
  const std::string one = folder.file("base1/model");
  TrainOptions begun = tuning_options(options, one, folder.file("whole"));
  begun.lora = formats::LoraConfig{.rank = 2, .alpha = 4};
  ASSERT_TRUE(train_source(begun));
  const std::string flags = "--from " + one + " --lora --lora-rank 2 --lora-alpha 4.0";
  EXPECT_EQ(recorded_adapter_flags(begun.out_folder), flags);
  begun.out_folder = folder.file("few_bits");
  begun.lora->target_modules = {"q_proj", "v_proj"};
  begun.base_format = ops::WeightFormat::kQ8;
  ASSERT_TRUE(train_source(begun));
  EXPECT_EQ(recorded_adapter_flags(begun.out_folder),
            flags + " --lora-target q_proj --lora-target v_proj --quantize q8");
  EXPECT_EQ(recorded_adapter_flags(folder.file("base1")), "");
}

TEST(RunSource, GoesOnFromCheckpointsThatDoNotSayWhatTheyWereBegunFrom) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(30))});
  options.steps = 2;
  ASSERT_TRUE(train_source(options));
  // As an older program wrote it: without the field, under its own checksum.
  const std::string checkpoint = options.out_folder + "/checkpoints/step-00000002";
  const std::string path = checkpoint + "/state.json";
  Json state = *parse_json(*read_file(path), path);
  ASSERT_EQ(state["state"]["origin"].erase("source"), 1u);
  const std::string text = dump_json(state);
  ASSERT_TRUE(write_file_atomic(path, text));
  formats::XxHash64 hash;
  hash.update(text.data(), text.size());
  auto sums = *formats::parse_checksums(*read_file(checkpoint + "/checksums.xxh64"), "sums");
  std::string lines;
  for (const auto& [name, sum] : sums) {
    const uint64_t now = name == "state.json" ? hash.digest() : sum;
    lines += fmt::format("{:016x}  {}\n", now, name);
  }
  ASSERT_TRUE(write_file_atomic(checkpoint + "/checksums.xxh64", lines));
  EXPECT_EQ(recorded_source(options.out_folder), "");
  const Status again = train_source(options);
  EXPECT_TRUE(again) << again.error().message;
}

}  // namespace
}  // namespace jige::train
