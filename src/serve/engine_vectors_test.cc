// Vectors of prompts: what an engine gives is what an Embedder gives, to the bit, whatever runs
// beside it; little work does not wait for much.
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/test_path.h"
#include "serve/embedder.h"
#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using formats::PoolingKind;
using plan::Admission;
using plan::ServePolicy;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::value_of;
using Vector = std::vector<float>;

// Fewer rows that are read at once than a text has tokens.
const model::InferenceOptions kVectorsModel = {
    .kv_block_count = 40, .batch_tokens_max = 64, .logit_rows_max = 5, .embeds = true};

class VectorSink final : public RequestSink {
 public:
  void on_vector(std::span<const float> told) override {
    EXPECT_TRUE(vector.empty()) << "told twice";
    vector.assign(told.begin(), told.end());
  }
  void on_piece(int32_t, const AnswerPiece&) override { ADD_FAILURE() << "a piece of an answer"; }
  void on_choice(const ChoiceEnd& end) override { kept->on_choice(end); }
  void on_done(const RequestReport& report) override { kept->on_done(report); }
  void on_failed(const Error& error) override { kept->on_failed(error); }

  const std::shared_ptr<KeepingSink> kept = std::make_shared<KeepingSink>();
  Vector vector;
};

EngineRequest vector_request(std::vector<int32_t> tokens, WantedVector wanted = {}) {
  return {.prompt = std::move(tokens), .tokens_max = 0, .vector = wanted};
}

struct VectorCase {
  EngineRequest request;
  Vector expected;  // of an Embedder
};

// Texts with beginnings in common, up to the whole context, in all forms.
std::vector<VectorCase> vector_cases(Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "vectors"));
  constexpr PoolingKind kPoolings[] = {PoolingKind::kLastToken, PoolingKind::kMean,
                                       PoolingKind::kWeightedMean};
  std::vector<VectorCase> cases;
  for (int i = 0; i < count; ++i) {
    const auto shared = static_cast<int32_t>(rng.below(3) * 17);
    uint64_t own = 1 + rng.below(40);
    if (i == 3) own = static_cast<uint64_t>(loaded.model->context_max()) - shared;
    std::vector<int32_t> tokens;
    for (int32_t k = 0; k < shared; ++k) tokens.push_back(3 + (k * 7) % 90);
    for (uint64_t k = 0; k < own; ++k) tokens.push_back(static_cast<int32_t>(3 + rng.below(90)));
    WantedVector wanted{.form = {.pooling = kPoolings[rng.below(3)],
                                 .include_prompt = rng.below(2) == 0,
                                 .normalise = rng.below(3) > 0,
                                 .dimensions = static_cast<int64_t>(rng.below(2) * 5)},
                        .prompt_count = shared};
    EngineRequest request = vector_request(std::move(tokens), wanted);
    request.tenant = rng.below(4);
    Embedder embedder(*loaded.model, wanted.form);
    const std::vector<EmbedInput> inputs = {
        {.tokens = request.prompt, .prompt_count = wanted.prompt_count}};
    cases.push_back({request, value_of(embedder.embed(inputs))[0]});
  }
  return cases;
}

EngineStatus run_vectors(Loaded& loaded, const std::vector<VectorCase>& cases,
                         EngineOptions options) {
  Gate gate;
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  std::vector<std::shared_ptr<VectorSink>> sinks;
  for (const VectorCase& one : cases) {
    sinks.push_back(std::make_shared<VectorSink>());
    value_of(engine->submit(one.request, sinks.back()));
    if (sinks.size() == 1) gate.wait_until_held();
  }
  gate.open();
  for (size_t i = 0; i < sinks.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(sinks[i]->kept->wait()) << "never ended";
    EXPECT_FALSE(sinks[i]->kept->error) << sinks[i]->kept->error->message;
    EXPECT_EQ(sinks[i]->vector, cases[i].expected);
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  const EngineStatus status = engine->status();
  EXPECT_EQ(status.counters.requests_finished[static_cast<size_t>(FinishReason::kComplete)],
            std::ssize(cases));
  EXPECT_EQ(status.counters.generated_tokens, 0);
  return status;
}

TEST(EngineVectors, AreThoseOfAnEmbedderWhateverRunsBesideThem) {
  Loaded loaded("llama3", kVectorsModel);
  const std::vector<VectorCase> cases = vector_cases(loaded, 1, 24);
  int64_t cached = 0;
  for (const int32_t batch_tokens : {7, 64, 512}) {
    for (const bool prefix_cache : {false, true}) {
      const EngineStatus status = run_vectors(
          loaded, cases, {.batch_tokens_max = batch_tokens, .prefix_cache = prefix_cache});
      if (prefix_cache) cached += status.counters.prefix_hit_tokens;
    }
  }
  EXPECT_GT(cached, 0) << "no beginning was known";
  for (const VectorCase& one : cases) run_vectors(loaded, {one}, {});
}

// Whose texts run whole, whatever an iteration is to hold.
TEST(EngineVectors, OfModelsThatLookAheadAreThoseOfAnEmbedderToo) {
  Loaded loaded("../embedding/mistral_ahead", kVectorsModel);
  const std::vector<VectorCase> cases = vector_cases(loaded, 4, 16);
  for (const ServePolicy policy : plan::kServePolicies) {
    for (const int32_t batch_tokens : {7, 512}) {
      const EngineStatus status =
          run_vectors(loaded, cases, {.policy = policy, .batch_tokens_max = batch_tokens});
      EXPECT_EQ(status.counters.prefix_hit_tokens, 0);
    }
  }
}

TEST(EngineVectors, PoliciesDoNotMatter) {
  Loaded loaded("mistral", kVectorsModel);
  const std::vector<VectorCase> cases = vector_cases(loaded, 2, 16);
  for (const ServePolicy policy : plan::kServePolicies) {
    for (const bool fair_share : {false, true}) {
      run_vectors(loaded, cases, {.policy = policy, .fair_share = fair_share});
    }
  }
}

TEST(EngineVectors, SurvivePreemption) {
  model::InferenceOptions few = kVectorsModel;
  few.kv_block_count = 17;
  Loaded loaded("qwen2", few);
  const std::vector<VectorCase> cases = vector_cases(loaded, 3, 24);
  for (const int32_t batch_tokens : {20, 64}) {
    run_vectors(loaded, cases,
                {.admission = Admission::kOptimistic, .batch_tokens_max = batch_tokens});
  }
}

TEST(EngineVectors, LittleWorkDoesNotWaitForMuch) {
  Loaded loaded("llama3", kVectorsModel);
  Gate gate;
  EngineOptions options{.batch_tokens_max = 16};
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  std::vector<int64_t> ended;  // lengths of texts
  const auto submit = [&](int64_t tokens, uint64_t tenant) {
    EngineRequest request = vector_request(
        std::vector<int32_t>(static_cast<size_t>(tokens), static_cast<int32_t>(5 + tenant)));
    request.tenant = tenant;
    auto sink = std::make_shared<VectorSink>();
    sink->kept->when_over = [&ended, tokens] { ended.push_back(tokens); };
    value_of(engine->submit(std::move(request), sink));
    return sink;
  };
  const auto first = submit(100, 1);
  gate.wait_until_held();
  const auto second = submit(101, 1);
  const auto little = submit(8, 2);
  gate.open();
  for (const auto& sink : {first, second, little}) ASSERT_TRUE(sink->kept->wait());
  EXPECT_EQ(little->kept->report->iterations, 1);
  EXPECT_EQ(ended, (std::vector<int64_t>{8, 100, 101}));
}

TEST(EngineVectors, CancelledOnesGiveTheirRoomBack) {
  Loaded loaded("llama3", kVectorsModel);
  Gate gate(2);
  EngineOptions options{.batch_tokens_max = 16};
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  const std::vector<VectorCase> cases = vector_cases(loaded, 4, 1);
  const auto gone = std::make_shared<VectorSink>();
  const auto id = value_of(engine->submit(vector_request(std::vector<int32_t>(120, 9)), gone));
  gate.wait_until_held();
  const auto stays = std::make_shared<VectorSink>();
  value_of(engine->submit(cases[0].request, stays));
  engine->cancel(id);
  gate.open();
  ASSERT_TRUE(gone->kept->wait());
  ASSERT_TRUE(stays->kept->wait());
  EXPECT_TRUE(gone->vector.empty());
  EXPECT_EQ(gone->kept->ends[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(stays->vector, cases[0].expected);
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(EngineVectors, RefusalsNameWhatIsWrong) {
  Loaded loaded("llama3", kVectorsModel);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  const auto refused = [&](const EngineRequest& request, RequestField field,
                           const std::string& part) {
    const auto id = engine->submit(request, std::make_shared<VectorSink>());
    ASSERT_FALSE(id) << part;
    EXPECT_EQ(id.error().field, field) << part;
    EXPECT_NE(id.error().message.find(part), std::string::npos) << id.error().message;
  };
  refused({.prompt = {5}}, RequestField::kVector, "gives no answers");
  EngineRequest request = vector_request({5, 6});
  request.tokens_max = 1;
  refused(request, RequestField::kVector, "0 tokens");
  request = vector_request({5, 6}, {.form = {.dimensions = 4096}});
  refused(request, RequestField::kVector, "4096");
  refused(vector_request({}), RequestField::kPrompt, "empty");
  const auto context = static_cast<size_t>(engine->context_max());
  refused(vector_request(std::vector<int32_t>(context + 1, 5)), RequestField::kPrompt, "holds");
  request = vector_request(
      {5, 6},
      {.form = {.pooling = PoolingKind::kMean, .include_prompt = false}, .prompt_count = 2});
  refused(request, RequestField::kPrompt, "belong to the prompt");

  Loaded other("llama3");
  const auto answering = value_of(Engine::create(*other.model, other.tokenizer, {}));
  const auto id = answering->submit(vector_request({5}), std::make_shared<VectorSink>());
  ASSERT_FALSE(id);
  EXPECT_NE(id.error().message.find("not loaded for embeddings"), std::string::npos);
}

TEST(EngineVectors, OneThatIsNotFiniteFailsAlone) {
  const std::string folder = test_root() + "jige_vectors." + std::to_string(getpid());
  std::filesystem::copy(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/llama", folder,
                        std::filesystem::copy_options::recursive);
  const std::string path = folder + "/model.safetensors";
  std::string bytes = value_of(read_file(path));
  std::fill(bytes.end() - 1024, bytes.end(), '\xff');
  ASSERT_TRUE(write_file_atomic(path, bytes));
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(folder, device, {.embeds = true}));
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const auto engine = value_of(Engine::create(*model, tokenizer, {}));
  for (int i = 0; i < 2; ++i) {
    const auto sink = std::make_shared<VectorSink>();
    value_of(engine->submit(vector_request(std::vector<int32_t>(30, 5)), sink));
    ASSERT_TRUE(sink->kept->wait());
    ASSERT_TRUE(sink->kept->error);
    EXPECT_EQ(sink->kept->error->code, Code::kCorrupt);
    EXPECT_TRUE(sink->vector.empty());
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  EXPECT_EQ(engine->status().kv_blocks_cached, 0) << "nothing of it is known";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace jige::serve
