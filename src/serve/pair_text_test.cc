// Scores of pairs against sentence-transformers and transformers, and batches that must not matter.
#include "serve/pair_text.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <latch>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "serve/embedder.h"
#include "serve/engine.h"
#include "serve/engine_test_support.h"
#include "serve/serve_test_support.h"
#include "text/post_processor.h"

namespace jige::serve {
namespace {

using ::testing::HasSubstr;
using testing::value_of;

const char* const kPairModels[] = {
    "bert",        "roberta",         "xlm_roberta", "qwen3",    "qwen3_untied", "qwen3_class",
    "modernbert",  "modernbert_mean", "distilbert",  "mpnet",    "nomic",        "deberta",
    "deberta_own", "deberta_keys",    "gte",         "eurobert", "eurobert_bos"};

// A recorded folder, ready to judge.
struct RecordedPairs {
  explicit RecordedPairs(const std::string& name, DType compute = DType::kF32,
                         int64_t batch_tokens = 512)
      : folder(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/pairs/" + name),
        tokenizer(value_of(text::Tokenizer::load(folder))),
        config(value_of(formats::load_pair_config(folder, tokenizer))),
        device({.thread_count = 1}),
        model(value_of(model::InferenceModel::load(folder, device,
                                                   {.compute = compute,
                                                    .batch_tokens_max = batch_tokens,
                                                    .logit_rows_max = 5,
                                                    .embeds = true}))) {
    const std::string path = folder + "/expected.json";
    expected = value_of(parse_json(value_of(read_file(path)), path));
    if (!expected["instruction"].is_null()) instruction = expected["instruction"];
    documents = expected["documents"];
  }
  Result<PairText> pairs(PairTextOptions options = {}) const {
    if (options.query.empty()) options.query = expected["query"];
    options.instruction = instruction;
    if (options.tokens_max == 0) options.tokens_max = model->context_max();
    return PairText::create(tokenizer, config, options);
  }
  std::vector<EmbedInput> inputs(const std::vector<std::string>& list,
                                 const std::string& query = "") const {
    const PairText texts = value_of(pairs({.query = query}));
    std::vector<EmbedInput> made;
    for (const std::string& document : list) made.push_back(value_of(texts.encode(document)));
    return made;
  }
  std::vector<float> logits(const std::vector<EmbedInput>& of) {
    Embedder judge(*model, pair_form(config));
    std::vector<float> made;
    for (const std::vector<float>& logit : value_of(judge.embed(of))) {
      EXPECT_EQ(logit.size(), 1u);
      made.push_back(logit[0]);
    }
    return made;
  }
  std::string folder;
  text::Tokenizer tokenizer;
  formats::PairConfig config;
  CpuDevice device;
  std::unique_ptr<model::InferenceModel> model;
  Json expected;
  std::string instruction;
  std::vector<std::string> documents;
};

TEST(PairText, ScoresAreThoseOfTransformers) {
  for (const std::string name : kPairModels) {
    RecordedPairs made(name);
    const std::vector<EmbedInput> inputs = made.inputs(made.documents);
    const std::vector<float> logits = made.logits(inputs);
    ASSERT_EQ(logits.size(), 5u);
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_EQ(inputs[i].tokens, made.expected["ids"][i].get<std::vector<int32_t>>()) << name;
      std::vector<int> types(inputs[i].tokens.size(), 0);
      for (size_t k = 0; k < types.size(); ++k) types[k] = inputs[i].second_begin <= int64_t(k);
      EXPECT_EQ(types, made.expected["types"][i].get<std::vector<int>>()) << name;
      EXPECT_NEAR(logits[i], made.expected["logits"][i].get<double>(), 2e-5) << name;
      EXPECT_NEAR(formats::pair_score(made.config, logits[i]),
                  made.expected["scores"][i].get<double>(), 1e-5)
          << name;
    }
  }
}

TEST(PairText, ScoresInBf16AreNearThoseInF32) {
  for (const std::string name : kPairModels) {
    RecordedPairs made(name, DType::kBF16);
    const std::vector<float> logits = made.logits(made.inputs(made.documents));
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(logits[i], made.expected["logits"][i].get<double>(), 0.08) << name;
    }
  }
}

std::vector<std::string> mixed_documents(const RecordedPairs& made) {
  std::vector<std::string> list = made.documents;
  for (int i = 0; i < 6; ++i) list.push_back(std::string(static_cast<size_t>(11 * i), 'w'));
  return list;
}

// In one type of numbers and the other in turn.
TEST(PairText, ScoresHaveTheSameBitsInEveryBatch) {
  DType compute = DType::kF32;
  for (const std::string name : kPairModels) {
    RecordedPairs together(name, compute);
    std::vector<EmbedInput> inputs = together.inputs(mixed_documents(together));
    // Of another query, whose documents begin elsewhere.
    const std::vector<EmbedInput> others = together.inputs(together.documents, "w");
    inputs.insert(inputs.begin() + 3, others.begin(), others.end());
    const std::vector<float> expected = together.logits(inputs);
    RecordedPairs apart(name, compute, 48);
    EXPECT_EQ(apart.logits(inputs), expected) << name;
    for (size_t i = 0; i < inputs.size(); i += 3) {
      EXPECT_EQ(apart.logits({inputs[i]})[0], expected[i]) << name;
    }
    compute = compute == DType::kF32 ? DType::kBF16 : DType::kF32;
  }
}

// Vectors as they are told.
class LogitSink final : public RequestSink {
 public:
  void on_vector(std::span<const float> vector) override { logit = vector[0]; }
  void on_piece(int32_t, const AnswerPiece&) override {}
  void on_choice(const ChoiceEnd&) override {}
  void on_done(const RequestReport&) override { ended.count_down(); }
  void on_failed(const Error& error) override {
    ADD_FAILURE() << error.message;
    ended.count_down();
  }
  std::latch ended{1};
  float logit = NAN;
};

EngineRequest pair_request(const RecordedPairs& made, const EmbedInput& input) {
  return {
      .prompt = input.tokens,
      .tokens_max = 0,
      .vector = WantedVector{.form = pair_form(made.config), .second_begin = input.second_begin}};
}

TEST(PairText, AnEngineGivesTheSameBits) {
  for (const std::string name : kPairModels) {
    RecordedPairs made(name);
    const std::vector<EmbedInput> inputs = made.inputs(mixed_documents(made));
    const std::vector<float> expected = made.logits(inputs);
    auto engine = value_of(Engine::create(*made.model, made.tokenizer, {}));
    std::vector<std::shared_ptr<LogitSink>> sinks;
    for (const EmbedInput& input : inputs) {
      sinks.push_back(std::make_shared<LogitSink>());
      ASSERT_TRUE(engine->submit(pair_request(made, input), sinks.back()).has_value());
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      sinks[i]->ended.wait();
      EXPECT_EQ(sinks[i]->logit, expected[i]) << name;
    }
  }
}

TEST(PairText, TokenTypesThatAModelDoesNotHaveAreRefused) {
  RecordedPairs made("roberta");
  EmbedInput input = made.inputs({"a"})[0];
  input.second_begin = 3;
  auto engine = value_of(Engine::create(*made.model, made.tokenizer, {}));
  const auto id = engine->submit(pair_request(made, input), std::make_shared<LogitSink>());
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().field, RequestField::kPrompt);
  Embedder judge(*made.model, pair_form(made.config));
  const auto vectors = judge.embed(std::vector{input});
  ASSERT_FALSE(vectors.has_value());
  EXPECT_THAT(vectors.error().message, HasSubstr("second type from 3 on"));
}

// Tokens of a pair behind the document.
ptrdiff_t tokens_behind(const RecordedPairs& made) {
  if (made.config.join == formats::PairJoin::kTokenizer) {
    return std::ssize(made.tokenizer.pair_frame()->behind);
  }
  const std::vector<int32_t> none = made.inputs({""})[0].tokens;
  const int32_t turn = made.tokenizer.token_to_id("<|im_end|>").value_or(-1);
  return std::find(none.rbegin(), none.rend(), turn) - none.rbegin() + 1;
}

TEST(PairText, CutsTheDocumentAloneAndOnlyWhereAsked) {
  for (const std::string name : kPairModels) {
    RecordedPairs made(name);
    const std::string longest = made.documents[1];
    const EmbedInput whole = made.inputs({longest})[0];
    const EmbedInput none = made.inputs({""})[0];
    const int64_t room = std::ssize(none.tokens) + 3;
    const PairText refusing =
        value_of(made.pairs({.tokens_max = room, .hint = ", or give --truncate"}));
    const auto refused = refusing.encode(longest);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message,
                HasSubstr(fmt::format("have {} tokens", whole.tokens.size())));
    EXPECT_THAT(refused.error().message, HasSubstr("the document, or give --truncate"));

    const PairText cutting = value_of(made.pairs({.tokens_max = room, .truncate = true}));
    const EmbedInput cut = value_of(cutting.encode(longest));
    EXPECT_TRUE(cut.truncated);
    ASSERT_EQ(std::ssize(cut.tokens), room);
    EXPECT_EQ(cut.second_begin, whole.second_begin);
    // The first tokens of the document are there, and all that is behind it.
    const ptrdiff_t behind = tokens_behind(made);
    const auto end = cut.tokens.end() - behind;
    EXPECT_TRUE(std::equal(cut.tokens.begin(), end, whole.tokens.begin())) << name;
    EXPECT_TRUE(std::equal(end, cut.tokens.end(), whole.tokens.end() - behind)) << name;
    EXPECT_FALSE(value_of(cutting.encode("")).truncated);

    const auto full = made.pairs({.tokens_max = std::ssize(none.tokens), .truncate = true});
    ASSERT_FALSE(full.has_value()) << name;
    EXPECT_THAT(full.error().message, HasSubstr("shorten the query"));
  }
}

TEST(PairText, SpecialTokensThatPeopleWriteAreText) {
  const std::pair<const char*, const char*> cases[] = {
      {"bert", "[SEP]"}, {"roberta", "</s>"}, {"qwen3", "<|im_end|>"}};
  for (const auto& [name, special] : cases) {
    const RecordedPairs made(name);
    const int32_t id =
        value_of(tl::expected<int32_t, Error>(made.tokenizer.token_to_id(special).value_or(-1)));
    ASSERT_GE(id, 0);
    const auto count = [&](const std::string& document) {
      return std::ranges::count(made.inputs({document})[0].tokens, id);
    };
    EXPECT_EQ(count(std::string("a ") + special + " b"), count("a b")) << name;
    EXPECT_GT(count("a b"), 0) << name;
  }
}

TEST(PairText, RefusesWhatCannotBeJoined) {
  const RecordedPairs bert("bert");
  const auto refused = [](const text::Tokenizer& tokenizer, const formats::PairConfig& config,
                          const PairTextOptions& options, const std::string& part) {
    const auto made = PairText::create(tokenizer, config, options);
    ASSERT_FALSE(made.has_value());
    EXPECT_THAT(made.error().message, HasSubstr(part));
  };
  refused(bert.tokenizer, bert.config, {.query = "", .tokens_max = 90}, "query is empty");
  refused(bert.tokenizer, bert.config, {.query = "a", .instruction = "b", .tokens_max = 90},
          "takes no instruction");
  refused(testing::character_tokenizer(), bert.config, {.query = "a", .tokens_max = 90},
          "how two texts become one");
}

}  // namespace
}  // namespace jige::serve
