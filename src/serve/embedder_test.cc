// Vectors of texts against sentence-transformers, and batches that must not matter.
#include "serve/embedder.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/test_path.h"
#include "formats/embedding_config.h"
#include "serve/adapter_folders.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using formats::PoolingKind;
using testing::character_tokenizer;
using testing::value_of;

std::string recorded(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
}

// A recorded folder, ready to make vectors.
struct Recorded {
  explicit Recorded(const std::string& name, int64_t batch_tokens = 512,
                    DType compute = DType::kF32)
      : folder(recorded(name)),
        config(value_of(formats::load_embedding_config(folder))),
        tokenizer(value_of(text::Tokenizer::load(folder))),
        device({.thread_count = 2}),
        model(value_of(
            model::InferenceModel::load(folder, device,
                                        {.compute = compute,
                                         .batch_tokens_max = batch_tokens,
                                         .logit_rows_max = std::min<int64_t>(batch_tokens, 5),
                                         .embeds = true}))) {}
  EmbeddingForm form(int64_t dimensions = 0) const {
    return {.pooling = config.pooling,
            .further = config.further,
            .include_prompt = config.include_prompt,
            .normalise = config.normalise || dimensions > 0,
            .dimensions = dimensions,
            .layers = config.layers};
  }
  std::string folder;
  formats::EmbeddingConfig config;
  text::Tokenizer tokenizer;
  CpuDevice device;
  std::unique_ptr<model::InferenceModel> model;
};

std::vector<EmbedInput> inputs_of(const text::Tokenizer& tokenizer,
                                  const EmbeddingTextOptions& options,
                                  const std::vector<std::string>& list) {
  const EmbeddingText texts = value_of(EmbeddingText::create(tokenizer, options));
  std::vector<EmbedInput> inputs;
  for (const std::string& text : list) inputs.push_back(value_of(texts.encode(text)));
  return inputs;
}

// The largest difference from a recorded case, whose vectors of another length than 1 are compared
// as if they had it.
double difference_from(Recorded& made, const Json& expected, const Json& wanted) {
  EmbeddingTextOptions options{.tokens_max = made.config.tokens_max, .truncate = true};
  if (!wanted["max_seq_length"].is_null()) options.tokens_max = wanted["max_seq_length"];
  std::string name = made.config.default_prompt;
  if (!wanted["prompt"].is_null()) name = wanted["prompt"];
  if (!name.empty()) options.prompt = *made.config.find_prompt(name);
  if (!wanted["prompt_text"].is_null()) options.prompt = wanted["prompt_text"];
  const int64_t dimensions = wanted["dimensions"].is_null() ? 0 : int64_t{wanted["dimensions"]};
  Embedder embedder(*made.model, made.form(dimensions));
  const auto vectors =
      value_of(embedder.embed(inputs_of(made.tokenizer, options, expected["texts"])));
  double worst = 0;
  for (size_t i = 0; i < vectors.size(); ++i) {
    const std::vector<double> reference = wanted["vectors"][i];
    EXPECT_EQ(vectors[i].size(), reference.size());
    double squares = 0;
    for (const double value : reference) squares += value * value;
    for (size_t k = 0; k < std::min(reference.size(), vectors[i].size()); ++k) {
      worst = std::max(worst, std::abs(vectors[i][k] - reference[k]) / std::sqrt(squares));
    }
  }
  return worst;
}

Json expected_of(const std::string& name) {
  const std::string path = recorded(name) + "/expected.json";
  return value_of(parse_json(value_of(read_file(path)), path));
}

// Every recorded folder, and how many cases it has.
std::vector<std::pair<std::string, size_t>> recorded_cases() {
  return {{"qwen3", 4},       {"mistral", 3},    {"llama", 2},      {"mistral_ahead", 1},
          {"gemma", 4},       {"qwen2", 2},      {"bert", 3},       {"roberta", 1},
          {"xlm_roberta", 2}, {"modernbert", 3}, {"distilbert", 1}, {"mpnet", 2},
          {"nomic", 3},       {"several", 2},    {"deberta", 3},    {"deberta_own", 1},
          {"gte", 4},         {"gte_plain", 1},  {"eurobert", 2}};
}

TEST(Embedder, AgreesWithSentenceTransformers) {
  for (const auto& [name, cases] : recorded_cases()) {
    Recorded made(name);
    const Json expected = expected_of(name);
    for (size_t i = 0; i < expected["texts"].size(); ++i) {
      const std::string text = expected["texts"][i];
      EXPECT_EQ(value_of(made.tokenizer.encode(text, {})),
                expected["ids"][i].get<std::vector<int32_t>>())
          << text;
    }
    double worst = 0;
    for (const Json& wanted : expected["cases"]) {
      const double difference = difference_from(made, expected, wanted);
      EXPECT_LE(difference, 1e-5) << name << " " << wanted["prompt"] << wanted["max_seq_length"];
      worst = std::max(worst, difference);
    }
    EXPECT_EQ(expected["cases"].size(), cases);
    RecordProperty(name, fmt::format("{:.3g}", worst));
  }
}

// In one type of numbers and the other in turn.
TEST(Embedder, VectorsHaveTheSameBitsInEveryBatch) {
  DType compute = DType::kF32;
  for (const auto& [name, cases] : recorded_cases()) {
    Recorded made(name, 512, compute);
    std::vector<std::string> list = expected_of(name)["texts"];
    for (int i = 0; i < 7; ++i) list.push_back(std::string(static_cast<size_t>(1 + 19 * i), 'w'));
    const auto inputs = inputs_of(made.tokenizer,
                                  {.prompt = "p: ",
                                   .tokens_max = std::min<int64_t>(made.model->context_max(), 200),
                                   .truncate = true},
                                  list);
    Embedder whole(*made.model, made.form());
    const auto vectors = value_of(whole.embed(inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(value_of(whole.embed(std::span(inputs).subspan(i, 1)))[0], vectors[i]) << i;
    }
    // Pieces of texts, one step after the other.
    Recorded narrow(name, 7, compute);
    Embedder pieces(*narrow.model, narrow.form());
    EXPECT_EQ(value_of(pieces.embed(inputs)), vectors) << name;
    compute = compute == DType::kF32 ? DType::kBF16 : DType::kF32;
  }
}

TEST(Embedder, AnAdapterIsThatOfEveryTextOfAStep) {
  const testing::AdapterFolders folders("llama3");
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(
      testing::fixture("llama3"), device,
      {.context_max = 32, .batch_tokens_max = 24, .embeds = true, .adapters = folders.sources}));
  std::vector<EmbedInput> inputs;
  for (const std::vector<int32_t>& tokens : {std::vector<int32_t>{5, 6, 7}, {9}, {8, 3, 5, 6}}) {
    inputs.push_back({.tokens = tokens});
  }
  Embedder base(*model, {.pooling = PoolingKind::kMean});
  const auto plain = value_of(base.embed(inputs));
  for (int32_t adapter = 0; adapter < std::ssize(folders.sources); ++adapter) {
    Embedder adapted(*model, {.pooling = PoolingKind::kMean}, adapter);
    const auto vectors = value_of(adapted.embed(inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_NE(vectors[i], plain[i]);
      EXPECT_EQ(value_of(adapted.embed(std::span(inputs).subspan(i, 1)))[0], vectors[i]);
    }
  }
}

TEST(EmbeddingText, MayComeInSmallLetters) {
  const auto tokenizer = value_of(text::Tokenizer::load(recorded("qwen3")));
  const EmbeddingTextOptions plain{.prompt = "Query: ", .tokens_max = 200};
  EmbeddingTextOptions lowered = plain;
  lowered.lowers = true;
  EmbeddingTextOptions written = plain;
  written.prompt = "query: ";
  const auto tokens = [&](const EmbeddingTextOptions& options, std::string_view text) {
    return value_of(value_of(EmbeddingText::create(tokenizer, options)).encode(text)).tokens;
  };
  EXPECT_EQ(tokens(lowered, "What Is \xC3\x89?"), tokens(written, "what is \xC3\xA9?"));
  EXPECT_NE(tokens(lowered, "What"), tokens(plain, "What"));
}

TEST(Embedder, RefusesTextsThatDoNotFit) {
  Recorded made("qwen3");
  Embedder embedder(*made.model, made.form());
  EXPECT_EQ(embedder.dimensions(), 24);
  EXPECT_EQ(embedder.tokens_max(), 256);
  std::vector<EmbedInput> inputs(1);
  EXPECT_EQ(embedder.embed(inputs).error().code, Code::kInvalidArgument);
  inputs[0].tokens.assign(257, 1);
  EXPECT_NE(embedder.embed(inputs).error().message.find("257 tokens"), std::string::npos);
  inputs[0].tokens.assign(3, 288);
  EXPECT_EQ(embedder.embed(inputs).error().code, Code::kInvalidArgument);
  inputs[0].tokens.assign(3, 1);
  Embedder mean(*made.model, {.pooling = PoolingKind::kMean, .include_prompt = false});
  inputs[0].prompt_count = 3;
  EXPECT_NE(mean.embed(inputs).error().message.find("prompt"), std::string::npos);
  inputs[0].tokens.assign(256, 1);
  EXPECT_TRUE(embedder.embed(inputs)) << "after failures, too";
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(embedder.embed(inputs, &cancelled).error().code, Code::kCancelled);
}

TEST(Embedder, RefusesAModelThatIsNotFinite) {
  const std::string folder = test_root() + "jige_nan_rows." + std::to_string(getpid());
  std::filesystem::copy(recorded("llama"), folder, std::filesystem::copy_options::recursive);
  const std::string path = folder + "/model.safetensors";
  std::string bytes = value_of(read_file(path));
  std::fill(bytes.end() - 1024, bytes.end(), '\xff');
  ASSERT_TRUE(write_file_atomic(path, bytes));
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(folder, device, {.embeds = true}));
  Embedder embedder(*model, {.pooling = PoolingKind::kMean});
  const std::vector<EmbedInput> inputs = {{.tokens = {5, 6, 7}}};
  EXPECT_EQ(embedder.embed(inputs).error().code, Code::kCorrupt);
  std::filesystem::remove_all(folder);
}

TEST(EmbeddingText, CutsATextButNotWhatStandsAroundIt) {
  const Recorded made("mistral");  // one token in front and one behind
  const std::string text = "The capital of China is Beijing.";
  const auto whole = value_of(made.tokenizer.encode(text, {}));
  ASSERT_GT(whole.size(), 6u);
  const auto texts =
      value_of(EmbeddingText::create(made.tokenizer, {.tokens_max = 6, .truncate = true}));
  const EmbedInput cut = value_of(texts.encode(text));
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.tokens.size(), 6u);
  EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end() - 1, whole.begin()));
  EXPECT_EQ(cut.tokens.back(), made.tokenizer.suffix_ids()[0]);
  EXPECT_EQ(cut.prompt_count, 0);
  EXPECT_FALSE(value_of(texts.encode("x")).truncated);

  const auto strict =
      value_of(EmbeddingText::create(made.tokenizer, {.tokens_max = 6, .hint = ", or cut it"}));
  const auto refused = strict.encode(text);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("6 are allowed; shorten it, or cut it"),
            std::string::npos);
  EXPECT_FALSE(EmbeddingText::create(made.tokenizer, {.tokens_max = 2}));
  const auto prompted = value_of(
      EmbeddingText::create(made.tokenizer, {.prompt = text, .tokens_max = 6, .truncate = true}));
  EXPECT_EQ(value_of(prompted.encode("more")).prompt_count, 5);
}

TEST(EmbeddingText, CutsTheBeginningWhereItIsTold) {
  const Recorded made("mistral");  // one token in front and one behind
  const std::string text = "The capital of China is Beijing.";
  const auto whole = value_of(made.tokenizer.encode(text, {}));
  const auto texts = value_of(EmbeddingText::create(
      made.tokenizer, {.tokens_max = 6, .truncate = true, .cuts_left = true}));
  const EmbedInput cut = value_of(texts.encode(text));
  EXPECT_TRUE(cut.truncated);
  ASSERT_EQ(cut.tokens.size(), 6u);
  EXPECT_EQ(cut.tokens[0], whole[0]);
  EXPECT_TRUE(std::equal(cut.tokens.begin() + 1, cut.tokens.end(), whole.end() - 5));
}

TEST(EmbeddingText, TakesIdsAsTheyAre) {
  const Recorded made("mistral");
  const auto end = value_of(
      EmbeddingText::create(made.tokenizer, {.prompt = "p: ", .tokens_max = 4, .truncate = true}));
  EXPECT_EQ(value_of(end.take({5, 6})).tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(value_of(end.take({5, 6})).prompt_count, 0);
  EXPECT_EQ(value_of(end.take({5, 6, 7, 8, 9})).tokens, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(end.take({}).error().code, Code::kInvalidArgument);
  const auto begin = value_of(EmbeddingText::create(
      made.tokenizer, {.tokens_max = 4, .truncate = true, .cuts_left = true}));
  EXPECT_EQ(value_of(begin.take({5, 6, 7, 8, 9})).tokens, (std::vector<int32_t>{6, 7, 8, 9}));
  const auto strict = value_of(EmbeddingText::create(made.tokenizer, {.tokens_max = 4}));
  EXPECT_EQ(strict.take({5, 6, 7, 8, 9}).error().code, Code::kInvalidArgument);
}

TEST(EmbeddingText, RefusesATextWithoutTokens) {
  const auto texts = value_of(EmbeddingText::create(character_tokenizer(), {.tokens_max = 8}));
  EXPECT_EQ(texts.encode("").error().code, Code::kInvalidArgument);
}

TEST(RowPooler, ComputesWhatItsHeaderSays) {
  const std::vector<std::vector<float>> rows = {{1, 0, 8}, {2, -4, 8}, {6, 1, 8}};
  const auto pooled = [&](EmbeddingForm form, int64_t prompt_count = 0) {
    RowPooler pooler(form, 3, prompt_count);
    for (int64_t i = 0; i < 3; ++i) {
      if (pooler.wants(i)) pooler.add(i, rows[static_cast<size_t>(i)]);
    }
    return pooler.finish();
  };
  using Vector = std::vector<float>;
  EmbeddingForm form{.normalise = false};
  EXPECT_EQ(value_of(pooled(form)), (Vector{6, 1, 8}));
  form.pooling = PoolingKind::kMean;
  EXPECT_EQ(value_of(pooled(form)), (Vector{3, -1, 8}));
  form.pooling = PoolingKind::kMeanSqrtLen;
  const auto root = static_cast<float>(std::sqrt(3.0));
  EXPECT_FLOAT_EQ(value_of(pooled(form))[0], 3 * root);
  EXPECT_FLOAT_EQ(value_of(pooled(form))[2], 8 * root);
  form.pooling = PoolingKind::kWeightedMean;
  EXPECT_EQ(value_of(pooled(form)), (Vector{23.f / 6, -5.f / 6, 8}));
  EXPECT_EQ(value_of(pooled(form, 2)), (Vector{23.f / 6, -5.f / 6, 8})) << "with the prompt";
  form.include_prompt = false;
  EXPECT_EQ(value_of(pooled(form, 1)), (Vector{22.f / 5, -1, 8}));
  form.pooling = PoolingKind::kMean;
  EXPECT_EQ(value_of(pooled(form, 1)), (Vector{4, -1.5f, 8}));
  EXPECT_FALSE(RowPooler(form, 3, 3).wants(2)) << "nothing is left";
  form.pooling = PoolingKind::kLastToken;
  EXPECT_EQ(value_of(pooled(form, 3)), (Vector{6, 1, 8}));
  form.dimensions = 2;
  EXPECT_EQ(value_of(pooled(form)), (Vector{6, 1}));
  form = {.pooling = PoolingKind::kMean, .dimensions = 2};
  const auto unit = value_of(pooled(form));
  EXPECT_FLOAT_EQ(unit[0], 3 / std::sqrt(10.f));
  EXPECT_FLOAT_EQ(unit[1], -1 / std::sqrt(10.f));
}

TEST(RowPooler, TakesTheFirstRowOrTheLargestOfEachColumn) {
  const std::vector<std::vector<float>> rows = {{3, -5}, {1, -2}, {2, -4}};
  const auto pooled = [&](const EmbeddingForm& form, int64_t prompt_count) {
    RowPooler pooler(form, 3, prompt_count);
    for (int64_t i = 0; i < 3; ++i) {
      if (pooler.wants(i)) pooler.add(i, rows[static_cast<size_t>(i)]);
    }
    return value_of(pooler.finish());
  };
  EmbeddingForm form{
      .pooling = PoolingKind::kCls, .include_prompt = false, .normalise = false, .layers = {}};
  EXPECT_EQ(pooled(form, 0), (std::vector<float>{3, -5}));
  EXPECT_EQ(pooled(form, 2), (std::vector<float>{2, -4})) << "the first behind the prompt";
  const RowPooler first(form, 3, 1);
  EXPECT_EQ(std::pair(first.first(), first.end()), std::pair(int64_t{1}, int64_t{2}));
  form.pooling = PoolingKind::kMax;
  EXPECT_EQ(pooled(form, 1), (std::vector<float>{2, -2}));
  EXPECT_EQ(pooled(form, 0), (std::vector<float>{3, -2}));
  form.dimensions = 1;
  EXPECT_EQ(pooled(form, 0), (std::vector<float>{3}));
  RowPooler broken(form, 2, 0);
  broken.add(0, std::vector<float>{std::nanf(""), 1});
  broken.add(1, std::vector<float>{5, 1});
  EXPECT_FALSE(broken.finish());
}

TEST(RowPooler, PoolingsStandBehindOneAnother) {
  EmbeddingForm form{.pooling = PoolingKind::kCls,
                     .further = {PoolingKind::kMean, PoolingKind::kLastToken},
                     .include_prompt = false,
                     .normalise = false};
  const auto pooled = [&](int64_t prompt_count) {
    RowPooler pooler(form, 3, prompt_count);
    const std::vector<std::vector<float>> rows = {{3, -5}, {1, -2}, {2, -4}};
    for (int64_t i = 0; i < 3; ++i) {
      if (pooler.wants(i)) pooler.add(i, rows[static_cast<size_t>(i)]);
    }
    return value_of(pooler.finish());
  };
  EXPECT_EQ(pooled(1), (std::vector<float>{1, -2, 1.5f, -3, 2, -4}));
  EXPECT_EQ(form.width(2), 6);
  EXPECT_TRUE(check_pooled(form, 3, 2).has_value());
  EXPECT_FALSE(check_pooled(form, 3, 3)) << "the mean is of nothing";
  EXPECT_FALSE(RowPooler(form, 3, 2).wants(1));
  form.dimensions = 3;
  EXPECT_EQ(pooled(1), (std::vector<float>{1, -2, 1.5f}));
  form.dimensions = 0;
  form.layers = std::make_shared<const std::vector<formats::VectorLayer>>(
      1, formats::VectorLayer{.inputs = 6, .outputs = 1, .weight = {1, 0, 0, 1, 1, 0}, .bias = {}});
  EXPECT_EQ(pooled(1), (std::vector<float>{0}));
}

TEST(RowPooler, LayersStandBehindThePooling) {
  const formats::VectorLayer wide{
      .inputs = 2, .outputs = 3, .weight = {1, 0, 2, 0, 1, -1}, .bias = {0, 1, 0}};
  const formats::VectorLayer bent{.inputs = 3,
                                  .outputs = 1,
                                  .weight = {0.25f, 0.5f, -1},
                                  .bias = {},
                                  .activation = formats::VectorActivation::kTanh};
  EmbeddingForm form{.pooling = PoolingKind::kMean, .normalise = false};
  form.layers = std::make_shared<const std::vector<formats::VectorLayer>>(1, wide);
  const auto pooled = [&] {
    RowPooler pooler(form, 2, 0);
    pooler.add(0, std::vector<float>{1, 2});
    pooler.add(1, std::vector<float>{3, 4});
    return value_of(pooler.finish());
  };
  EXPECT_EQ(pooled(), (std::vector<float>{2, 4, 1}));  // of (2, 3)
  EXPECT_EQ(form.width(2), 3);
  form.dimensions = 2;
  EXPECT_EQ(pooled(), (std::vector<float>{2, 4}));
  form.dimensions = 0;
  form.layers = std::make_shared<const std::vector<formats::VectorLayer>>(
      std::vector<formats::VectorLayer>{wide, bent});
  EXPECT_EQ(pooled(), (std::vector<float>{static_cast<float>(std::tanh(1.5))}));
}

TEST(RowPooler, HeadsOfPairsHaveOtherActivationsAndNorms) {
  formats::VectorLayer layer{
      .inputs = 2, .outputs = 3, .weight = {1, 0, -1, 0, 1, 0}, .bias = {0, 0, 0.5f}};
  EmbeddingForm form{.pooling = PoolingKind::kCls, .normalise = false};
  const auto pooled = [&](std::vector<float> row) {
    form.layers = std::make_shared<const std::vector<formats::VectorLayer>>(1, layer);
    RowPooler pooler(form, 1, 0);
    pooler.add(0, row);
    return pooler.finish();
  };
  layer.activation = formats::VectorActivation::kRelu;
  EXPECT_EQ(value_of(pooled({2, -3})), (std::vector<float>{2, 0, 0}));
  EXPECT_FALSE(pooled({INFINITY, 0})) << "not hidden by what is cut";
  layer.activation = formats::VectorActivation::kGelu;
  const std::vector<float> bent = value_of(pooled({2, -3}));
  const double expected[] = {2 * 0.97724986805182, -3 * 0.0013498980316301,
                             -1.5 * 0.0668072012688581};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(bent[i], expected[i], 1e-6);
  layer.activation = formats::VectorActivation::kIdentity;
  layer.norm = {.weight = {1, 2, 3}, .bias = {0, 0, 1}, .eps = 2};
  // Of (2, -3, -1.5): mean -5/6, variance 4.3889.
  const std::vector<float> normed = value_of(pooled({2, -3}));
  const double deviation = std::sqrt(79.0 / 18 + 2);
  EXPECT_NEAR(normed[0], 17.0 / 6 / deviation, 1e-6);
  EXPECT_NEAR(normed[1], 2 * -13.0 / 6 / deviation, 1e-6);
  EXPECT_NEAR(normed[2], 3 * -4.0 / 6 / deviation + 1, 1e-6);
}

TEST(RowPooler, AVectorOfZerosStaysOne) {
  RowPooler pooler({}, 1, 0);
  pooler.add(0, std::vector<float>{0, 0});
  EXPECT_EQ(value_of(pooler.finish()), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace jige::serve
