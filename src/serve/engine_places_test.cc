// Prompts with images whose rows have places by line and column: the bits of running alone,
// whatever runs beside them, however prompts are cut, known from before or begun again; and of
// running all of a sequence at once.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "formats/image_config.h"
#include "serve/engine_test_support.h"
#include "serve/given_rows.h"

namespace jige::serve {
namespace {

using testing::alone;
using ::testing::HasSubstr;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

// That of Qwen3-VL has rows of several levels, too, that of Qwen3.5 layers with states.
constexpr const char* kPlacesModels[] = {"../image_towers/qwen2_vl", "../image_towers/qwen2_5_vl",
                                         "../image_towers/qwen3_vl", "../image_towers/qwen3_5"};
constexpr int32_t kPlacesVocab = 96;

model::InferenceOptions places_options() {
  return {.compute = DType::kF32,
          .kv_block_count = 18,  // of which several requests want more
          .state_count = 10,     // likewise
          .batch_tokens_max = 64,
          .logit_rows_max = 16};
}

struct LoadedForPlaces : Loaded {
  explicit LoadedForPlaces(const std::string& name) : Loaded(name, places_options()) {
    const auto config = value_of(formats::load_image_config(testing::fixture(name)));
    EXPECT_TRUE(model->turn_by_places(config->pair_places));
    levels = static_cast<int32_t>(config->levels());
  }
  int32_t levels = 1;
};

struct Lines {
  int32_t rows, columns;
};

// An image of random rows, the same each time for a number.
GivenRowsRef rows_in_lines(int32_t number, Lines lines, const LoadedForPlaces& loaded) {
  const int64_t width = loaded.model->config().hidden_size;
  Rng rng(derive_key(static_cast<uint64_t>(number), "an image"));
  const int64_t count = int64_t{lines.rows} * lines.columns;
  std::vector<float> values;
  for (int64_t i = 0; i < loaded.levels * count * width; ++i) {
    values.push_back(static_cast<float>(rng.below(1000)) / 500 - 1);
  }
  return std::make_shared<GivenRows>(GivenRows{.first_id = kPlacesVocab + 100 * number,
                                               .token = 92,
                                               .count = count,
                                               .values = std::move(values),
                                               .columns = lines.columns,
                                               .levels = loaded.levels});
}

void put_image(EngineRequest& request, const GivenRowsRef& image, size_t at) {
  std::vector<int32_t> ids(static_cast<size_t>(image->count));
  std::iota(ids.begin(), ids.end(), image->first_id);
  const auto place = static_cast<ptrdiff_t>(std::min(at, request.prompt.size()));
  request.prompt.insert(request.prompt.begin() + place, ids.begin(), ids.end());
  request.given.push_back(image);
}

// Some without an image, some with one or two of a few.
std::vector<EngineRequest> prompts_with_images(uint64_t seed, int count,
                                               const LoadedForPlaces& loaded) {
  constexpr Lines kShapes[] = {{2, 5}, {4, 3}, {1, 7}, {6, 1}};
  Rng rng(derive_key(seed, "images with places"));
  std::vector<GivenRowsRef> known;
  for (const Lines lines : kShapes) {
    known.push_back(rows_in_lines(static_cast<int32_t>(known.size()), lines, loaded));
  }
  std::vector<EngineRequest> requests;
  for (int i = 0; i < count; ++i) {
    EngineRequest request = random_request(rng);
    const uint64_t images = rng.below(3);
    for (uint64_t k = 0; k < images; ++k) {
      // At the end, so that those before stay whole.
      const size_t at = k == 0 ? rng.below(20) : request.prompt.size();
      put_image(request, known[rng.below(known.size())], at);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(EnginePlaces, HaveTheBitsOfRunningAlone) {
  for (const std::string name : kPlacesModels) {
    SCOPED_TRACE(name);
    LoadedForPlaces loaded(name);
    const std::vector<EngineRequest> requests = prompts_with_images(1, 10, loaded);
    std::vector<Outcome> expected;
    for (const EngineRequest& request : requests) expected.push_back(alone(loaded, request));
    testing::expect_outcomes_anyhow(loaded, requests, expected, std::array{7, 64});
  }
}

// The token that follows a sequence, which is run as a whole by hand.
int32_t next_token(model::InferenceModel& model, const EngineRequest& request,
                   std::span<const model::ImageGrid> grids, std::span<const int32_t> ids) {
  const model::ImagePlaces places({grids.begin(), grids.end()});
  const model::ImagePlaces* const of_sequence = &places;
  std::vector<int32_t> tokens(ids.begin(), ids.end());
  PlacedRows placed;
  GivenTable(request.given, request.prompt).place(tokens, 0, placed);
  std::vector<int32_t> blocks(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(tokens.size()),
                                   .blocks = blocks.data()};
  const int32_t last = sequence.row_count - 1;
  const auto logits = value_of(model.forward({.tokens = tokens,
                                              .sequences = std::span(&sequence, 1),
                                              .logit_rows = std::span(&last, 1),
                                              .given = placed.given,
                                              .places = std::span(&of_sequence, 1)}));
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

TEST(GeneratorPlaces, AnswersGoOnFromWhereTheImagesEnd) {
  for (const std::string name : kPlacesModels) {
    SCOPED_TRACE(name);
    LoadedForPlaces loaded(name);
    for (const DraftOptions& drafts : {DraftOptions{.tokens_max = 0}, {.tokens_max = 3}}) {
      EngineRequest request;
      request.prompt = {1, 5, 17};
      put_image(request, rows_in_lines(0, {2, 5}, loaded), 3);
      request.prompt.push_back(40);
      put_image(request, rows_in_lines(1, {4, 3}, loaded), request.prompt.size());
      request.prompt.insert(request.prompt.end(), {41, 42});
      const std::vector<model::ImageGrid> grids = {{3, 2, 5}, {14, 4, 3}};
      Generator generator(*loaded.model, loaded.tokenizer);
      GenerateOptions options{.tokens_max = 14, .chunk_tokens = 4, .drafts = drafts};
      options.sampling.temperature = 0;
      options.given = request.given;
      const auto answer = value_of(generator.generate(request.prompt, options));
      ASSERT_EQ(answer.tokens.size(), 14u);
      std::vector<int32_t> ids = request.prompt;
      for (const int32_t token : answer.tokens) {
        EXPECT_EQ(next_token(*loaded.model, request, grids, ids), token) << ids.size();
        ids.push_back(token);
      }
    }
  }
}

TEST(EnginePlaces, ThatCannotBeAreRefusedBeforeTheyRun) {
  LoadedForPlaces loaded(kPlacesModels[0]);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  const auto refusal = [](Engine& asked, const EngineRequest& request) {
    const auto id = asked.submit(request, sink_for(request));
    return id ? "" : id.error().message;
  };
  EngineRequest right;
  right.prompt.assign(9, 5);
  put_image(right, rows_in_lines(0, {2, 5}, loaded), 3);
  EXPECT_EQ(refusal(*engine, right), "");
  EngineRequest wrong = right;
  wrong.prompt.erase(wrong.prompt.begin() + 12);
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("a part of an image at 3"));
  wrong = right;
  wrong.prompt.erase(wrong.prompt.begin() + 3);
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("a part of an image at 3"));
  wrong = right;
  std::swap(wrong.prompt[5], wrong.prompt[6]);
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("a part of an image at 3"));
  wrong = right;
  wrong.prompt.resize(8);
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("a part of an image at 3"));
  GivenRows uneven = *right.given.front();
  uneven.columns = 3;
  wrong = right;
  wrong.given = {std::make_shared<GivenRows>(uneven)};
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("a part of an image at 3"));

  GivenRows deep = *right.given.front();
  deep.levels = 2;
  wrong.given = {std::make_shared<GivenRows>(deep)};
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("20 given rows of"));
  deep.levels = 4;
  wrong.given = {std::make_shared<GivenRows>(deep)};
  EXPECT_THAT(refusal(*engine, wrong), HasSubstr("the levels of given rows is 4"));

  Loaded plain(kPlacesModels[0], places_options());
  const auto other = value_of(Engine::create(*plain.model, plain.tokenizer, {}));
  EXPECT_THAT(refusal(*other, right), HasSubstr("turns by no places"));
  const model::ImagePlaces places({{3, 2, 5}});
  const model::ImagePlaces* const of_sequence = &places;
  const std::vector<int32_t> tokens(4, 5), blocks = {0};
  const ops::SequenceSpan sequence{.row_count = 4, .blocks = blocks.data()};
  const auto logits = plain.model->forward({.tokens = tokens,
                                            .sequences = std::span(&sequence, 1),
                                            .logit_rows = {},
                                            .places = std::span(&of_sequence, 1)});
  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace jige::serve
