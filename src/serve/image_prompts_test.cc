// Images in prompts: where their tokens stand, which ids they have, what is encoded, and answers of
// an engine to them.
#include "serve/image_prompts.h"

#include <gmock/gmock.h>

#include <optional>
#include <thread>

#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using testing::alone;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Loaded;
using testing::Outcome;
using testing::sink_for;
using testing::value_of;

constexpr int32_t kPlace = 90, kBreak = 91, kEnd = 92, kFirstRow = 96;
constexpr int64_t kRowWidth = 8;

formats::ImageConfig image_config(int64_t width = kRowWidth) {
  formats::ImageConfig config;
  config.patch_size = 2;
  config.merge = 2;
  config.text_width = width;
  config.width_max = config.height_max = 32;
  config.placeholder_id = kPlace;
  config.break_id = kBreak;
  config.end_id = kEnd;
  return config;
}

images::Image image_of(int32_t width, int32_t height, uint8_t colour) {
  images::Image image = images::make_image(width, height);
  image.rgb.assign(image.rgb.size(), colour);
  return image;
}

// Rows that tell what they were made of, and how many images were.
struct Encoder {
  explicit Encoder(int64_t row_width = kRowWidth) : config(image_config(row_width)) {}
  formats::ImageConfig config;
  int count = 0;
  ImagePrompts::Encoder function() {
    return [this](const images::Image& image, const GoOn& go_on) -> Result<std::vector<float>> {
      ++count;
      JIGE_DO(may_go_on(go_on));
      const auto rows = formats::image_layout(config, image.width, image.height).row_count();
      return std::vector<float>(static_cast<size_t>(rows * config.text_width),
                                0.01f * static_cast<float>(image.rgb.front()));
    };
  }
};

ImagePrompts make_prompts(Encoder& encoder, int64_t context_max = 100,
                          int64_t rows_bytes_max = 1 << 20) {
  return ImagePrompts(
      encoder.config, encoder.function(),
      {.vocab_size = kFirstRow, .context_max = context_max, .rows_bytes_max = rows_bytes_max});
}

TEST(ImagePrompts, PutTheTokensOfImagesWhereTheirPlacesAre) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  const images::Image images[] = {image_of(8, 8, 1), image_of(12, 4, 2)};
  const std::vector<int32_t> ids = {5, kPlace, 6, 7, kPlace};
  EXPECT_EQ(prompts.token_count(8, 8), 6);
  EXPECT_EQ(prompts.token_count(ids, images), 3 + 6 + 4);
  const ImagePrompt prompt = value_of(prompts.read(ids, images));
  EXPECT_THAT(prompt.ids, ElementsAre(5, 96, 97, kBreak, 98, 99, kEnd, 6, 7, 100, 101, 102, kEnd));
  ASSERT_EQ(prompt.given.size(), 2U);
  EXPECT_EQ(prompt.given[0]->first_id, 96);
  EXPECT_EQ(prompt.given[0]->token, kPlace);
  EXPECT_EQ(prompt.given[0]->values, std::vector<float>(4 * kRowWidth, 0.01f));
  EXPECT_EQ(prompt.given[1]->values, std::vector<float>(3 * kRowWidth, 0.02f));
  EXPECT_EQ(prompt.cache_salt, 0U);
}

TEST(ImagePrompts, AnImageThatComesAgainHasItsIdsAndIsNotEncodedAgain) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  const std::vector<int32_t> ids = {kPlace, 5, kPlace};
  const images::Image images[] = {image_of(8, 8, 1), image_of(8, 8, 1)};
  const ImagePrompt prompt = value_of(prompts.read(ids, images));
  EXPECT_EQ(encoder.count, 1);
  EXPECT_EQ(prompt.given[0], prompt.given[1]);
  EXPECT_EQ(value_of(prompts.read(ids, images)).ids, prompt.ids);
  EXPECT_EQ(encoder.count, 1);
  // The same bytes in another shape, and one byte that is another.
  const images::Image others[] = {image_of(16, 4, 1), image_of(8, 8, 1)};
  EXPECT_NE(value_of(prompts.read(ids, others)).given[0], prompt.given[0]);
  images::Image changed = image_of(8, 8, 1);
  changed.rgb.back() = 2;
  EXPECT_NE(value_of(prompts.read({{kPlace}}, {{changed}})).given[0], prompt.given[0]);
  EXPECT_EQ(encoder.count, 3);
}

// As the family has it: with the text of the token that a template writes, rows that see one
// another.
TEST(ImagePrompts, OfGemma3HaveRowsThatSeeOneAnother) {
  for (const bool mutual : {false, true}) {
    Encoder encoder;
    encoder.config.mutual_rows = mutual;
    encoder.config.written = {.token = "<start>", .text = "<start>[IMG]<end>"};
    ImagePrompts prompts = make_prompts(encoder);
    const ImagePrompt prompt = value_of(prompts.read({{5, kPlace}}, {{image_of(8, 8, 1)}}));
    EXPECT_EQ(prompt.given[0]->mutual, mutual);
    const auto missing = prompts.read({{5}}, {{image_of(8, 8, 1)}});
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, HasSubstr("a place (\"<start>\") for 0 images"));
  }
}

TEST(ImagePrompts, RefuseBeforeAnythingIsEncoded) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder, 10);
  const auto message = [&](const std::vector<int32_t>& ids,
                           const std::vector<images::Image>& images) {
    const auto prompt = prompts.read(ids, images);
    if (prompt) return std::string();
    EXPECT_EQ(prompt.error().code, Code::kInvalidArgument);
    return prompt.error().message;
  };
  const images::Image one = image_of(8, 8, 1);
  EXPECT_THAT(message({5, 6}, {one}), HasSubstr("a place (\"[IMG]\") for 0 images and 1 came"));
  EXPECT_THAT(message({kPlace, kPlace}, {one}), HasSubstr("for 2 images and 1 came"));
  EXPECT_THAT(message({kPlace}, {}), HasSubstr("for 1 images and 0 came"));
  EXPECT_THAT(message({1, 2, 3, 4, kPlace}, {one}), HasSubstr("10 tokens with its images (4"));
  EXPECT_EQ(encoder.count, 0);
  EXPECT_EQ(message({1, 2, 3, kPlace}, {one}), "");
  EXPECT_EQ(encoder.count, 1);
}

TEST(ImagePrompts, EndWhereTheyAreToldTo) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  const auto left = [] { return Status(fail(Code::kCancelled, "the client has left")); };
  const auto prompt = prompts.read({{kPlace}}, {{image_of(8, 8, 1)}}, left);
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code, Code::kCancelled);
  EXPECT_TRUE(prompts.read({{kPlace}}, {{image_of(8, 8, 1)}})) << "nothing of it is kept";
}

TEST(ImagePrompts, RefuseImagesForWhichOthersLeaveNoMemory) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder, 100, 4 * kRowWidth * 4 * 2);
  const auto read = [&](uint8_t colour) {
    return prompts.read({{kPlace}}, {{image_of(8, 8, colour)}});
  };
  const ImagePrompt one = value_of(read(1));
  ImagePrompt two = value_of(read(2));
  const auto three = read(3);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, Code::kExhausted);
  two = {};
  EXPECT_TRUE(read(3));
}

// Ids for ten rows: the third image begins anew, and those of before have other ids then.
// What an encoder asks whether to go on reads another prompt, with an image of its own and one that
// both have.
TEST(ImagePrompts, AreReadWhileAnotherIs) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  const images::Image images[] = {image_of(8, 8, 1), image_of(12, 4, 2)};
  const images::Image others[] = {image_of(12, 4, 2), image_of(4, 4, 3)};
  const std::vector<int32_t> ids = {5, kPlace, kPlace};
  std::optional<ImagePrompt> other;
  const ImagePrompt prompt = value_of(prompts.read(ids, images, [&]() -> Status {
    if (!other) other = value_of(prompts.read(ids, others));
    return {};
  }));
  ASSERT_TRUE(other);
  EXPECT_EQ(encoder.count, 3);
  EXPECT_EQ(prompt.given[1], other->given[0]);
  EXPECT_EQ(value_of(prompts.read(ids, images)).ids, prompt.ids);
  EXPECT_EQ(value_of(prompts.read(ids, others)).ids, other->ids);
}

TEST(ImagePrompts, AreCounted) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  const images::Image images[] = {image_of(8, 8, 1), image_of(12, 4, 2), image_of(8, 8, 1)};
  value_of(prompts.read({{kPlace, kPlace, kPlace}}, images));
  const ImageReadCounts counts = prompts.counts();
  EXPECT_EQ(counts.known, 1);
  EXPECT_EQ(counts.rows, 4 + 3);
  EXPECT_EQ(counts.rows_bytes, (4 + 3) * kRowWidth * static_cast<int64_t>(sizeof(float)));
  EXPECT_EQ(counts.encode_seconds.count, 2u);
}

// One that is large can be ended before all of it has been looked at.
TEST(ImagePrompts, EndWhereTheyAreTold) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  const images::Image images[] = {image_of(2048, 2048, 1)};
  int asked = 0;
  const auto read = prompts.read({{kPlace}}, images, [&]() -> Status {
    if (++asked < 3) return {};
    return fail(Code::kCancelled, "enough");
  });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "enough");
  EXPECT_EQ(encoder.count, 0);
}

TEST(ImagePrompts, OfAPromptHaveIdsOfOneEpoch) {
  Encoder encoder;
  ImagePrompts prompts(encoder.config, encoder.function(),
                       {.vocab_size = INT32_MAX - 10, .context_max = 100});
  const images::Image a = image_of(8, 8, 1), b = image_of(8, 8, 2), c = image_of(8, 8, 3);
  const std::vector<int32_t> ids = {kPlace, kPlace};
  const ImagePrompt before = value_of(prompts.read(ids, {{b, a}}));
  EXPECT_EQ(before.cache_salt, 0U);
  const ImagePrompt behind = value_of(prompts.read(ids, {{b, c}}));
  EXPECT_NE(behind.cache_salt, 0U);
  EXPECT_EQ(behind.given[1]->first_id, INT32_MAX - 10);
  EXPECT_EQ(behind.given[0]->first_id, INT32_MAX - 6);
  EXPECT_EQ(behind.given[0]->values, before.given[0]->values);
  EXPECT_EQ(value_of(prompts.read(ids, {{c, b}})).cache_salt, behind.cache_salt);
  EXPECT_EQ(prompts.read({{kPlace}}, {{image_of(16, 16, 4)}}).error().code, Code::kInvalidArgument);
}

TEST(ImagePrompts, ManyThreadsGetTheSameIds) {
  Encoder encoder;
  ImagePrompts prompts = make_prompts(encoder);
  std::vector<std::thread> threads;
  std::array<ImagePrompt, 4> found;
  for (ImagePrompt& one : found) {
    threads.emplace_back([&prompts, &one] {
      for (uint8_t i = 0; i < 50; ++i) {
        one = value_of(prompts.read({{kPlace}}, {{image_of(8, 8, i % 7)}}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(encoder.count, 7);
  for (const ImagePrompt& one : found) EXPECT_EQ(one.ids, found[0].ids);
}

// Images of two colours, of which each has its own answer however often and beside whom it comes.
TEST(ImagePrompts, GiveAnswersThatDependOnTheirOwnImages) {
  Loaded loaded("llama3", {.compute = DType::kF32, .kv_block_count = 60, .batch_tokens_max = 16});
  Encoder encoder(loaded.model->config().hidden_size);
  ImagePrompts prompts = make_prompts(encoder);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  const auto request_of = [&](uint8_t colour) {
    const std::vector<int32_t> ids = {5, 6, kPlace, 7, 8};
    const images::Image image = image_of(32, 32, colour);
    ImagePrompt prompt = value_of(prompts.read(ids, std::span(&image, 1)));
    EngineRequest request{.prompt = std::move(prompt.ids), .given = std::move(prompt.given)};
    request.tokens_max = 12;
    request.ignore_eos = true;
    return request;
  };
  std::vector<EngineRequest> requests;
  std::vector<std::shared_ptr<testing::KeepingSink>> sinks;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of(i % 2 == 0 ? 10 : 200));
    sinks.push_back(sink_for(requests.back()));
    value_of(engine->submit(requests.back(), sinks.back()));
  }
  EXPECT_TRUE(engine->drain(20));
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_FALSE(sinks[i]->error);
    EXPECT_EQ(sinks[i]->outcome, alone(loaded, requests[i])) << i;
  }
  EXPECT_NE(sinks[0]->outcome, sinks[1]->outcome) << "the images are seen";
  EXPECT_EQ(encoder.count, 2);
}

}  // namespace
}  // namespace jige::serve
