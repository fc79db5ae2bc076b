// Training with images beside transformers and PEFT: of each family of models that read images the
// losses of the first steps, on the tokens and pixels of its own processor, and the weights behind
// them (tests/tools/image_training.py). Where a Python with these packages is at hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "images/test_files.h"
#include "integration/image_folder.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

// Behind a step a few weights are others by up to two learning rates: AdamW moves one whose
// gradient is nearly nothing as far as others, to the side that rounding chose. So the rate is
// small, and the decay large, for it to be seen.
constexpr const char* kRate = "1e-3";
constexpr const char* kDecay = "1";
constexpr double kFirstLoss = 5e-6;
constexpr double kLaterLoss = 3e-4;
constexpr double kWeight = 5e-4;

struct TrainedFamily {
  std::string name;
  int micro_tokens = 128;
  bool language_alone = false;  // a result without what reads images (docs/formats.md)
};

const std::vector<TrainedFamily> kTrainedFamilies = {
    {.name = "gemma3"},
    {.name = "gemma3_wide"},
    {.name = "gemma4"},
    {.name = "gemma4_clipped"},
    {.name = "gemma4_unified"},
    {.name = "idefics3", .micro_tokens = 400},
    {.name = "internvl", .micro_tokens = 300},
    {.name = "internvl_rms", .micro_tokens = 200},
    {.name = "llava", .micro_tokens = 200},
    {.name = "llava_next", .micro_tokens = 300},
    {.name = "llava_onevision", .micro_tokens = 300},
    {.name = "llava_siglip", .micro_tokens = 200},
    {.name = "mistral3"},
    {.name = "mistral3_silu"},
    {.name = "pixtral"},
    {.name = "qwen2_5_vl"},
    {.name = "qwen2_5_vl_new"},
    {.name = "qwen2_vl"},
    {.name = "qwen3_5"},
    {.name = "qwen3_5_moe"},
    {.name = "qwen3_vl"},
    {.name = "qwen3_vl_moe", .language_alone = true},
    {.name = "smolvlm", .micro_tokens = 300},
};

TEST(ImageTrainingFamilies, AreAllThatAreRecorded) {
  std::set<std::string> recorded, trained;
  for (const auto& entry :
       std::filesystem::directory_iterator(JIGE_SOURCE_DIR "/tests/fixtures/image_towers")) {
    if (entry.is_directory()) recorded.insert(entry.path().filename());
  }
  for (const TrainedFamily& family : kTrainedFamilies) trained.insert(family.name);
  EXPECT_EQ(trained, recorded);
}

// Chats with none, one and two images of several sizes, in their first questions and behind.
const char* const kChats =
    R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "wide.png"}, )"
    R"({"type": "text", "text": "What is it?"}]}, {"role": "assistant", "content": "a cat"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "grey.jpg"}, )"
    R"({"type": "text", "text": "and"}, {"type": "image", "image": "interlaced_5x17.png"}, )"
    R"({"type": "text", "text": "are what?"}]}, {"role": "assistant", "content": "a dog, a log"}, )"
    R"({"role": "user", "content": "Which?"}, {"role": "assistant", "content": "a dog"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "How?"}, )"
    R"({"role": "assistant", "content": "So."}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, )"
    R"({"role": "user", "content": [{"type": "text", "text": "What is it?"}, )"
    R"({"type": "image", "image": "lossy.webp"}]}, {"role": "assistant", "content": "birds"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "turned6.jpg"}, )"
    R"({"type": "image", "image": "one_pixel.jpg"}, {"type": "text", "text": "Same?"}]}, )"
    R"({"role": "assistant", "content": "no"}]})"
    "\n";

// Larger than the pictures of the fixtures: of several lines of rows for every family.
std::string wide_picture() {
  constexpr uint32_t kWidth = 61;
  constexpr uint32_t kHeight = 47;
  std::string rows;
  for (uint32_t y = 0; y < kHeight; ++y) {
    rows += '\0';
    for (uint32_t x = 0; x < 3 * kWidth; ++x) {
      rows += static_cast<char>((x * x / 7 + 5 * y + x % 3 * y) % 251);
    }
  }
  return images::stored_png(kWidth, kHeight, std::string("\x08\x02\0\0\0", 5), rows);
}

class ImageTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!python_has("peft, torch, torchvision, PIL.Image, transformers.models.got_ocr2."
                    "image_processing_pil_got_ocr2")) {
      GTEST_SKIP() << test_python() << " lacks peft, torch, torchvision, pillow or transformers 5";
    }
    std::filesystem::create_directory(folder_ / "data");
    for (const std::string name :
         {"grey.jpg", "interlaced_5x17.png", "lossy.webp", "turned6.jpg", "one_pixel.jpg"}) {
      std::filesystem::copy_file(picture_file(name), folder_ / "data/" + name);
    }
    write_text(folder_ / "data/wide.png", wide_picture());
    write_text(chats_, kChats);
  }

  // A step learns from all chats, in some micro-batches of some of them.
  Outcome train(const TrainedFamily& family, const std::vector<std::string>& more) {
    return run_with({"train",
                     "--from",
                     model_of_[family.name],
                     "--data",
                     chats_,
                     "--eval-data",
                     chats_,
                     "--dtype",
                     "f32",
                     "--micro-batch-tokens",
                     std::to_string(family.micro_tokens),
                     "--lr",
                     kRate,
                     "--schedule",
                     "constant",
                     "--clip",
                     "0",
                     "--eval-every",
                     "0",
                     "--json",
                     "-q"},
                    more);
  }

  // Its losses: of steps, and behind the last.
  std::vector<double> losses(const TrainedFamily& family, const std::string& out,
                             std::vector<std::string> more) {
    const Outcome plan = train(family, {"--out", out, "--plan-only"});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    if (plan.exit_code != 0) return {};
    tokens_of_[family.name] = plan.json()["epoch_tokens"];
    for (const std::string& flag : {std::string("--out"), out, std::string("--batch-tokens"),
                                    std::to_string(tokens_of_[family.name])}) {
      more.push_back(flag);
    }
    const Outcome outcome = train(family, more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<double> found;
    for (const Json& line : outcome.json_lines()) {
      if (line["kind"] == "step") {
        EXPECT_EQ(line["tokens"], tokens_of_[family.name]);
        EXPECT_GT(line["micro_batches"], 1);
        EXPECT_LT(line["micro_batches"], 5);
        learned_of_[family.name] = line["learned"];
      }
      if (line["kind"] == "step" || line["kind"] == "eval") found.push_back(line["loss"]);
    }
    return found;
  }

  // A line of a table: losses, and by how much transformers' are others.
  static void print_beside(const std::string& name, const std::vector<double>& losses,
                           const Json& expected) {
    fmt::print("{:16}", name);
    for (size_t i = 0; i < losses.size() && i < expected.size(); ++i) {
      fmt::print("  {:10.7f} {:10.1e}", losses[i], losses[i] - expected[i].get<double>());
    }
    fmt::print("\n");
  }

  static void expect_losses(const std::vector<double>& losses, const Json& expected) {
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i].get<double>(), i == 0 ? kFirstLoss : kLaterLoss) << i;
    }
  }

  const TestFolder folder_;
  const std::string chats_ = folder_ / "data/chats.jsonl";
  std::map<std::string, std::string> model_of_;
  std::map<std::string, int64_t> tokens_of_;
  std::map<std::string, int64_t> learned_of_;
};

TEST_F(ImageTraining, LearnsAsTransformersAndPeftDo) {
  std::string command = test_python() + " " +
                        shell_quoted(JIGE_SOURCE_DIR "/tests/tools/image_training.py") + " " +
                        shell_quoted(chats_);
  std::vector<std::vector<double>> all;
  std::vector<std::vector<double>> adapted;
  for (const TrainedFamily& family : kTrainedFamilies) {
    SCOPED_TRACE(family.name);
    model_of_[family.name] = recorded_image_folder(family.name, folder_ / family.name);
    const std::string run = folder_ / "run-" + family.name;
    all.push_back(losses(family, run, {"--epochs", "2", "--weight-decay", kDecay}));
    adapted.push_back(losses(family, run + "-lora",
                             {"--epochs", "1", "--weight-decay", "0", "--lora", "--lora-rank", "2",
                              "--lora-alpha", "4", "--no-merge"}));
    for (const std::string& path : {model_of_[family.name], run, run + "-lora"}) {
      command += " " + shell_quoted(path);
    }
  }
  const std::string said = folder_ / "said";
  ASSERT_EQ(std::system((command + " > " + said + " 2> " + said + "-errors").c_str()), 0)
      << read_text(said + "-errors");

  const JsonLines found = Outcome{.exit_code = 0, .out = read_text(said), .err = ""}.json_lines();
  ASSERT_EQ(found.size(), kTrainedFamilies.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const TrainedFamily& family = kTrainedFamilies[i];
    const Json& expected = found[i];
    SCOPED_TRACE(family.name + " " + expected.dump());
    EXPECT_EQ(tokens_of_[family.name], expected["tokens"]);
    EXPECT_EQ(learned_of_[family.name], expected["learned"]);
    expect_losses(all[i], expected["losses"]);
    EXPECT_LT(expected["weights"], kWeight);
    EXPECT_GT(expected["compared"], 0.8);
    EXPECT_EQ(expected["language_alone"], family.language_alone);
    EXPECT_EQ(expected["frozen"], !family.language_alone);
    print_beside(family.name, all[i], expected["losses"]);
    expect_losses(adapted[i], expected["lora_losses"]);
    EXPECT_LT(expected["lora_weights"], kWeight);
  }
}

}  // namespace
}  // namespace jige::integration
