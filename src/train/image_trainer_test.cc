// Runs that learn from chats with images: the same bits for any micro-batch and when they go on,
// the planned memory, a result that reads images as before, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "formats/tensor_folder.h"
#include "train/checkpoint_export.h"
#include "train/image_test_support.h"
#include "train/rank_test_support.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainOptions image_options(const TestFolder& folder, const std::string& data,
                           const std::string& out = "out") {
  TrainOptions options =
      tuning_options(tiny_options(folder, {data}), image_model("gemma3"), folder.file(out));
  options.context = 96;
  options.micro_batch_tokens = 96;
  options.step_tokens = 300;
  options.steps = 4;
  options.schedule.peak = 1e-2;
  options.lora = formats::LoraConfig{.rank = 2, .alpha = 4};
  return options;
}

Run trained(const TrainOptions& options) {
  auto run = train(options);
  EXPECT_TRUE(run) << run.error().message;
  return run ? std::move(*run) : Run();
}

std::string refusal_of(const TrainOptions& options) {
  const auto run = train(options);
  return run ? std::string("it ran") : run.error().message;
}

TEST(ImageTrainer, LearnsTheSameBitsWhateverRunsTogether) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 9);
  TrainOptions options = image_options(folder, data);
  const auto first = trained(options);
  ASSERT_EQ(first.losses.size(), 4u);
  EXPECT_LT(first.losses.back(), first.losses.front());
  const std::string bytes = model_bytes(options);
  EXPECT_NE(bytes, "none");

  for (const int64_t tokens : {150, 300}) {
    TrainOptions wider = image_options(folder, data, "wide" + std::to_string(tokens));
    wider.micro_batch_tokens = tokens;
    wider.thread_count = 2;
    EXPECT_EQ(trained(wider).losses, first.losses) << tokens;
    EXPECT_EQ(model_bytes(wider), bytes) << tokens;
  }
}

TEST(ImageTrainer, LearnsTheSameBitsOnSeveralRanks) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 9);
  const TrainOptions one = image_options(folder, data, "one");
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  const TrainOptions two = image_options(folder, data, "two");
  const std::vector<RankOutcome> ranks = train_ranks(two, {.size = 2});
  for (const RankOutcome& rank : ranks) {
    ASSERT_EQ(rank.error, "");
    EXPECT_EQ(rank.numbers, alone.numbers);
    EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes);
  }
  EXPECT_EQ(model_bytes(two), model_bytes(one));
}

TEST(ImageTrainer, TakesExactlyThePlannedMemory) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 6);
  for (const char* name : {"gemma3", "gemma4_clipped", "smolvlm", "internvl", "llava_onevision"}) {
    for (const bool lora : {true, false}) {
      TrainOptions options =
          image_options(folder, data, std::string(name) + (lora ? "-lora" : "-all"));
      options.init_folder = image_model(name);
      options.context = options.micro_batch_tokens = name[0] == 'g' ? 96 : 256;
      options.steps = 1;
      if (!lora) options.lora.reset();
      const auto trainer = Trainer::create(options);
      ASSERT_TRUE(trainer) << trainer.error().message;
      EXPECT_EQ((*trainer)->plan().image_count, 4);
      EXPECT_GT((*trainer)->plan().memory.images_bytes, 0);
      const auto result = (*trainer)->run();
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(result->memory.arena_peak_bytes, result->memory.arena_predicted_bytes) << name;
    }
  }
}

TEST(ImageTrainer, GoesOnWithTheSameBits) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 9);
  const TrainOptions whole = image_options(folder, data, "whole");
  const auto run = trained(whole);

  const TrainOptions parted = image_options(folder, data, "parted");
  int64_t steps = 0;
  TrainCallbacks stops;
  stops.on_step = [&](const StepInfo& info) { steps = info.step; };
  stops.should_stop = [&] { return steps >= 2; };
  const auto half = train(parted, stops);
  ASSERT_TRUE(half) << half.error().message;
  EXPECT_TRUE(half->result.stopped);
  const auto rest = trained(parted);
  EXPECT_EQ(rest.losses, std::vector(run.losses.begin() + 2, run.losses.end()));
  EXPECT_EQ(model_bytes(parted), model_bytes(whole));
}

TEST(ImageTrainer, SeesItsImages) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 3);
  const double loss = trained(image_options(folder, data)).losses.front();
  // The same chats about another picture; the file's own tokens are the same.
  images::Image other = numbered_picture(0);
  for (uint8_t& byte : other.rgb) byte = static_cast<uint8_t>(255 - byte);
  folder.write("picture0.png", png_of(other));
  EXPECT_NE(trained(image_options(folder, data, "other")).losses.front(), loss);
  // And a run that saw the former one is not continued.
  EXPECT_THAT(refusal_of(image_options(folder, data)), HasSubstr("data.content"));
}

TEST(ImageTrainer, SaysThatSmallerImagesMakeAnotherRun) {
  const TestFolder folder;
  TrainOptions options = image_options(folder, write_chats(folder, 3));
  options.init_folder = image_model("smolvlm");
  options.context = options.micro_batch_tokens = 256;
  trained(options);
  options.image_pixels_max = 256;
  EXPECT_THAT(refusal_of(options), AllOf(HasSubstr("data.content"), HasSubstr("--image-pixels")));
}

// A file's own pixels are read whatever the model gets of them.
TEST(ImageTrainer, AsksForSmallerImagesWhereMemoryIsScarce) {
  const TestFolder folder;
  TrainOptions options = image_options(folder, write_chats(folder, 3));
  {
    const auto trainer = Trainer::create(options);
    ASSERT_TRUE(trainer) << trainer.error().message;
    options.memory_limit_bytes = (*trainer)->plan().memory_predicted_bytes - 1;
  }
  EXPECT_THAT(refusal_of(options), HasSubstr("smaller images, as files or by --image-pixels"));
}

TEST(ImageTrainer, MeasuresHeldOutDataWithImages) {
  const TestFolder folder;
  TrainOptions options = image_options(folder, write_chats(folder, 6));
  options.data.eval_files = options.data.files;
  const auto run = trained(options);
  ASSERT_EQ(run.evals.size(), 1u);
  EXPECT_LT(run.evals[0].loss, run.losses.front());
}

// What stands in a folder beside the language model, by name: as bytes.
std::map<std::string, std::string> image_tensors(const std::string& folder) {
  std::map<std::string, std::string> found;
  const auto files = formats::TensorFolder::open(folder);
  EXPECT_TRUE(files) << files.error().message;
  for (const formats::StoredTensor* tensor : files->tensors()) {
    if (tensor->name.find("vision") == std::string::npos &&
        tensor->name.find("projector") == std::string::npos) {
      continue;
    }
    const auto bytes = *files->bytes_of(tensor->name);
    found[tensor->name] = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  return found;
}

void expect_same_class(const std::string& folder, const std::string& base) {
  const auto expected = image_tensors(base);
  EXPECT_GT(expected.size(), 10u);
  EXPECT_EQ(image_tensors(folder), expected);
  const Json config = *parse_json(bytes_of(folder + "/config.json"), "config");
  const Json first = *parse_json(bytes_of(base + "/config.json"), "config");
  for (const char* field : {"architectures", "model_type", "vision_config", "text_config"}) {
    EXPECT_EQ(config[field], first[field]) << field;
  }
  EXPECT_EQ(bytes_of(folder + "/preprocessor_config.json"),
            bytes_of(base + "/preprocessor_config.json"));
  const auto written = formats::TensorFolder::open(folder);
  const auto stored = formats::TensorFolder::open(base);
  for (const formats::StoredTensor* tensor : stored->tensors()) {
    EXPECT_NE(written->find(tensor->name), nullptr) << tensor->name;
  }
  EXPECT_EQ(written->tensors().size(), stored->tensors().size());
}

TEST(ImageTrainer, WritesAModelThatReadsImages) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 6);
  for (const auto& [name, lora] : {std::pair<std::string, bool>{"gemma3", true},
                                   {"gemma3", false},
                                   {"internvl", true},
                                   {"llava_next", false}}) {
    const std::string out = name + (lora ? "-lora" : "-all");
    SCOPED_TRACE(out);
    TrainOptions options = image_options(folder, data, out);
    options.init_folder = image_model(name);
    options.context = options.micro_batch_tokens = 128;
    if (!lora) options.lora.reset();
    options.steps = 1;
    trained(options);
    expect_same_class(options.out_folder + "/model", options.init_folder);
    const auto exported = export_checkpoint({.run_folder = options.out_folder});
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(bytes_of(exported->folder + "/model.safetensors"), model_bytes(options));
    expect_same_class(exported->folder, options.init_folder);
    // What was written is trained on again.
    TrainOptions again = image_options(folder, data, out + "2");
    again.context = again.micro_batch_tokens = 128;
    again.init_folder = options.out_folder + "/model";
    trained(again);
  }
}

// Learning from texts makes no other model of it, wherever its folder is when the run ends, goes on
// or is exported.
TEST(ImageTrainer, WritesAModelThatReadsImagesWhereItLearnedFromTextsAndItsBaseHasMoved) {
  const TestFolder folder;
  const std::string text = folder.write("text.txt", std::string(900, 'a') + "\n");
  const std::string moved = folder.file("moved");
  for (const bool lora : {true, false}) {
    TrainOptions options = image_options(folder, text, lora ? "lora" : "all");
    options.init_folder = folder.file("base");
    std::filesystem::copy(image_model("gemma3"), options.init_folder);
    options.tokenizer_folder.clear();
    if (!lora) options.lora.reset();
    options.steps = 1;
    trained(options);
    expect_same_class(options.out_folder + "/model", options.init_folder);
    const std::string bytes = model_bytes(options);

    std::filesystem::rename(options.init_folder, moved);
    const auto gone = export_checkpoint({.run_folder = options.out_folder});
    ASSERT_FALSE(gone);
    EXPECT_EQ(gone.error().code, Code::kNotFound);
    const auto other = export_checkpoint({.run_folder = options.out_folder,
                                          .tokenizer_folder = moved,
                                          .base_folder = image_model("gemma3_wide")});
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message, HasSubstr("gemma3_wide has other weights"));
    if (!lora) {
      const auto without = export_checkpoint({.run_folder = options.out_folder,
                                              .tokenizer_folder = moved,
                                              .base_folder = kFixtures + "model/gemma3"});
      ASSERT_FALSE(without);
      EXPECT_THAT(without.error().message, HasSubstr("holds none that does"));
    }
    const auto exported =
        export_checkpoint({.run_folder = options.out_folder, .base_folder = moved});
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(bytes_of(exported->folder + "/model.safetensors"), bytes);
    expect_same_class(exported->folder, moved);

    options.init_folder = moved;
    std::filesystem::remove_all(options.out_folder + "/model");
    trained(options);
    EXPECT_EQ(model_bytes(options), bytes);
    expect_same_class(options.out_folder + "/model", moved);
    std::filesystem::remove_all(moved);
  }
}

// While a run learns from texts, its tokenizer standing elsewhere.
TEST(ImageTrainer, SaysThatItsBaseHasMovedWhileItLearned) {
  const TestFolder folder;
  TrainOptions options =
      image_options(folder, folder.write("text.txt", std::string(900, 'a') + "\n"));
  options.init_folder = folder.file("base");
  options.tokenizer_folder = image_model("gemma3");
  std::filesystem::copy(image_model("gemma3"), options.init_folder);
  options.lora.reset();
  options.steps = 1;
  TrainCallbacks moves;
  moves.on_step = [&](const StepInfo&) {
    std::filesystem::rename(options.init_folder, folder.file("moved"));
  };
  const auto run = train(options, moves);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, AllOf(HasSubstr(options.init_folder), HasSubstr("--from")));
  const std::string begun = options.init_folder;
  options.init_folder = folder.file("moved");
  trained(options);
  expect_same_class(options.out_folder + "/model", options.init_folder);
}

TEST(ImageTrainer, NamesALineWhoseImageIsBadOrLeavesItOut) {
  const TestFolder folder;
  write_chats(folder, 3);
  const std::string good = bytes_of(folder.file("chats.jsonl"));
  folder.write("broken.png", png_of(numbered_picture(1)).substr(0, 90));
  folder.write("text.png", "no image");
  ASSERT_EQ(mkfifo(folder.file("pipe.png").c_str(), 0600), 0);
  const auto chat = [](const std::string& image) {
    return R"({"messages": [{"role": "user", "content": [{"type": "image", "image": ")" + image +
           R"("}]}, {"role": "assistant", "content": "a"}]})" + "\n";
  };
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {chat("gone.png"), {"gone.png", "--skip-bad"}},
      {chat("broken.png"), {"broken.png", "--skip-bad"}},
      {chat("text.png"), {"text.png", "is no image of a kind that is read"}},
      {chat("pipe.png"), {"pipe.png: is a pipe or a device; name a file"}},
      {chat("https://example.org/a.png"), {"nothing is downloaded"}},
      {chat("data:image/png;base64,?"), {"base64"}},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"
       "\n",
       {"names none for it"}},
      {R"({"images": ["a.png", "b.png"], "messages": [{"role": "user", "content": "<image>"}]})"
       "\n",
       {"names 2 images", "places for 1"}},
      {R"({"images": ["a.png"], "prompt": "<image>", "completion": "b"})"
       "\n",
       {"has \"images\" beside its texts", "write it as these", "leave \"images\" out"}},
      {R"({"image": "a.png", "text": "b"})"
       "\n",
       {"has \"image\" beside its texts", "write it as these"}}};
  int number = 0;
  for (const auto& [line, words] : cases) {
    SCOPED_TRACE(line);
    const std::string name = "bad" + std::to_string(number++) + ".jsonl";
    TrainOptions options = image_options(folder, folder.write(name, good + line), name + "-out");
    options.steps = 1;
    const std::string message = refusal_of(options);
    EXPECT_THAT(message, HasSubstr(name + ":4: "));
    for (const std::string& word : words) EXPECT_THAT(message, HasSubstr(word));
    options.data.skip_bad = true;
    const auto trainer = Trainer::create(options);
    ASSERT_TRUE(trainer) << trainer.error().message;
    EXPECT_EQ((*trainer)->plan().skipped_count, 1);
    EXPECT_EQ((*trainer)->plan().document_count, 3);
  }
}

TEST(ImageTrainer, CutsNoDocumentWithImages) {
  const TestFolder folder;
  TrainOptions options = image_options(folder, write_chats(folder, 3));
  options.context = 40;
  EXPECT_THAT(refusal_of(options),
              AllOf(HasSubstr("chats.jsonl:1: has "), HasSubstr("the context holds 41"),
                    HasSubstr("--context"), HasSubstr("--image-pixels")));
}

TEST(ImageTrainer, SaysWhatHasNoWayForImagesYet) {
  const TestFolder folder;
  const std::string data = write_chats(folder, 3);
  const auto refused = [&](auto change) {
    TrainOptions options = image_options(folder, data, "refused");
    change(options);
    return refusal_of(options);
  };
  EXPECT_THAT(refused([](TrainOptions& o) { o.data.packing = Packing::kStream; }),
              AllOf(HasSubstr("chats.jsonl:1: "), HasSubstr("--packing stream")));
  EXPECT_THAT(refused([](TrainOptions& o) { o.pipeline = PipelineOptions{.devices = 2}; }),
              AllOf(HasSubstr("chats.jsonl:1: "), HasSubstr("--devices")));
  TrainOptions text = tiny_options(folder, {data});
  text.out_folder = folder.file("text");
  EXPECT_THAT(refusal_of(text),
              AllOf(HasSubstr("chats.jsonl:1: messages[0].content[0]: is of type"),
                    HasSubstr("a new model reads text alone")));
}

}  // namespace
}  // namespace jige::train
