// Records with images against transformers (tests/tools/record_image_scores.py), alone and
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/image_model.h"
#include "cli/score_records.h"
#include "serve/serve_test_support.h"

namespace jige::cli {
namespace {

using serve::testing::value_of;
using ::testing::HasSubstr;

const std::string kTower = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/gemma3";

// The tiny Gemma 3 with what reads its images.
class ImageScoring {
 public:
  ImageScoring()
      : loaded_{.folder = kTower,
                .devices = {},
                .model = nullptr,
                .tokenizer = value_of(text::Tokenizer::load(kTower))} {
    loaded_.devices.host = std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = 1});
    loaded_.model = value_of(model::InferenceModel::load(kTower, *loaded_.devices.host,
                                                         {.compute = DType::kF32,
                                                          .context_max = 128,
                                                          .kv_block_count = 20,
                                                          .batch_tokens_max = 48,
                                                          .scores = true}));
    tower_ = value_of(load_image_tower(kTower, loaded_.tokenizer, *loaded_.devices.host, {}, 0));
    EXPECT_TRUE(prepare_for_images(*tower_, *loaded_.model));
    prompts_ = make_image_prompts(*tower_, *loaded_.model, {.context_max = 128});
  }

  ScoreOptions options() const {
    return {.chat = true,
            .data_folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/images/files",
            .images = [this]() -> Result<serve::ImagePrompts*> { return prompts_.get(); }};
  }

  Result<std::vector<Json>> score(const std::vector<std::string>& lines,
                                  const ScoreOptions& options) {
    std::vector<Json> results;
    const auto take = [&](int64_t, const Json& result) -> Status {
      results.push_back(result);
      return {};
    };
    JIGE_TRY(RecordScorer scorer, RecordScorer::create(loaded_, options, take));
    for (size_t i = 0; i < lines.size(); ++i) {
      JIGE_DO(scorer.add(lines[i], static_cast<int64_t>(i) + 1, "data:" + std::to_string(i + 1)));
    }
    JIGE_DO(scorer.flush());
    return results;
  }
  serve::ImageReadCounts counts() const { return prompts_->counts(); }

 private:
  LoadedModel loaded_;
  std::unique_ptr<model::ImageTower> tower_;
  std::unique_ptr<serve::ImagePrompts> prompts_;
};

// The recorded records, and what transformers says of them.
struct RecordedScores {
  std::vector<std::string> lines;
  std::vector<Json> expected;

  RecordedScores() {
    const std::string path = kTower + "/scores.json";
    const Json records = value_of(parse_json(value_of(read_file(path)), path));
    for (Json record : records) {
      expected.push_back(record["expected"]);
      record.erase("expected");
      lines.push_back(dump_json(record));
    }
  }
};

TEST(ScoreImages, AnswersAndChoicesAreAsLikelyAsInTransformers) {
  ImageScoring scoring;
  const RecordedScores recorded;
  const auto results = value_of(scoring.score(recorded.lines, scoring.options()));
  ASSERT_EQ(results.size(), 2u);
  double sum = 0;
  for (size_t a = 0; a < recorded.expected[0].size(); ++a) {
    const Json& expected = recorded.expected[0][a];
    const Json& answer = results[0]["answers"][a];
    ASSERT_EQ(answer["logprobs"].size(), expected.size());
    EXPECT_EQ(answer["tokens"].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(answer["logprobs"][i].get<double>(), expected[i].get<double>(), 5e-4);
      sum += expected[i].get<double>();
    }
  }
  EXPECT_EQ(results[0]["answers"].size(), recorded.expected[0].size());
  EXPECT_NEAR(results[0]["logprob"].get<double>(), sum, 5e-3);
  for (size_t c = 0; c < recorded.expected[1].size(); ++c) {
    EXPECT_NEAR(results[1]["choices"][c]["logprob"].get<double>(),
                recorded.expected[1][c].get<double>(), 5e-3);
  }
  EXPECT_EQ(results[1]["best"], 1);
  EXPECT_GE(scoring.counts().known, 2);  // the same pictures are read once
}

TEST(ScoreImages, ResultsDoNotDependOnOthers) {
  ImageScoring scoring;
  const RecordedScores recorded;
  std::vector<std::string> lines = recorded.lines;
  lines.insert(lines.end(), recorded.lines.rbegin(), recorded.lines.rend());
  lines.push_back(R"({"text": "a cat"})");
  const auto together = value_of(scoring.score(lines, scoring.options()));
  ScoreOptions small = scoring.options();
  small.image_rows_bytes_max = 1;  // a window for each record with images
  EXPECT_EQ(value_of(scoring.score(lines, small)), together);
  EXPECT_EQ(together[3], together[0]);
  EXPECT_EQ(value_of(scoring.score({lines[1]}, scoring.options()))[0], together[1]);
}

TEST(ScoreImages, SayWhatIsWrong) {
  ImageScoring scoring;
  const auto refusal = [&](const std::string& line, const ScoreOptions& options) {
    const auto results = scoring.score({line}, options);
    return results ? "scored: " + dump_json(Json(*results)) : results.error().message;
  };
  const std::string chat =
      R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "gone.png"}]},
          {"role": "assistant", "content": "a"}]})";
  EXPECT_THAT(refusal(chat, scoring.options()),
              ::testing::AllOf(HasSubstr("data:1"), HasSubstr("gone.png")));
  const std::string open = R"({"messages": [{"role": "user", "content": "a"}]})";
  EXPECT_THAT(refusal(open, scoring.options()), HasSubstr("no answer of the assistant"));
  const std::string choices = R"({"question": "a", "images": ["rgb8.png"], "choices": ["b"]})";
  ScoreOptions plain = scoring.options();
  plain.chat = false;
  EXPECT_THAT(refusal(choices, plain), HasSubstr("add --chat"));
  const std::string asks = R"({"question": "a", "images": ["rgb8.png"], "answer": "b"})";
  EXPECT_THAT(refusal(asks, scoring.options()), HasSubstr("choices"));
  ScoreOptions blind = scoring.options();
  blind.images = {};
  EXPECT_THAT(refusal(choices, blind), HasSubstr("texts alone"));
}

}  // namespace
}  // namespace jige::cli
