// POST /v1/rerank: what is read and refused, and answers of a whole server, whose scores are those
// of an Embedder, to the bit, for however many clients.
#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/request_test_support.h"
#include "api/rerank_request.h"
#include "api/service_test_support.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "serve/embedder.h"
#include "serve/pair_text.h"

namespace jige::api {
namespace {

using testing::expect_refused;
using ::testing::HasSubstr;
using testing::json_of;
using testing::soon;
using ::testing::StartsWith;
using testing::TestServer;
using testing::TestServerOptions;
using testing::value_of;

const std::string kJudge = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/pairs/xlm_roberta";
const std::string kQuery = "Who pays?";

text::Tokenizer judge_tokenizer() { return value_of(text::Tokenizer::load(kJudge)); }

ServedModel judging_model() {
  ServedModel model = testing::test_model();
  model.tokenizer = judge_tokenizer();
  model.pairs = ServedPairs{.config = value_of(formats::load_pair_config(kJudge, model.tokenizer)),
                            .tokens_max = 100,
                            .context_hint = " (or serve more)"};
  return model;
}

ApiResult<VectorWork> work_of(const std::string& members) {
  return rerank_work(json_of("{" + members + "}"), judging_model(), {.embedding_inputs_max = 4}, 9);
}

std::string asked(const std::string& documents, const std::string& more = "") {
  return R"("query":"Who pays?","documents":)" + documents + more;
}

// A server of the recorded model, whose contexts are longer than its pairs may be.
struct JudgingServer {
  JudgingServer() : server(options()) { server.set_model(judging_model()); }
  static TestServerOptions options() {
    TestServerOptions made;
    made.model = "../pairs/xlm_roberta";
    made.embeds = true;
    made.with_model = false;
    made.tokenizer = judge_tokenizer();
    return made;
  }
  testing::TestResponse post(const Json& body) { return server.post("/v1/rerank", body.dump()); }
  TestServer server;
};

// What an Embedder of its own makes of documents.
std::vector<float> scores_of(const std::vector<std::string>& documents, bool raw = false) {
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(
      kJudge, device, {.context_max = testing::kContext, .embeds = true}));
  const ServedModel served = judging_model();
  serve::Embedder judge(*model, serve::pair_form(served.pairs->config));
  const auto texts = value_of(serve::PairText::create(served.tokenizer, served.pairs->config,
                                                      {.query = kQuery, .tokens_max = 100}));
  std::vector<serve::EmbedInput> inputs;
  for (const std::string& one : documents) inputs.push_back(value_of(texts.encode(one)));
  std::vector<float> scores;
  for (const auto& logit : value_of(judge.embed(inputs))) {
    const double score = formats::pair_score(served.pairs->config, logit[0]);
    scores.push_back(raw ? logit[0] : static_cast<float>(score));
  }
  return scores;
}

TEST(Rerank, HoldsItsAdapter) {
  const VectorWork work = value_of(
      rerank_work(json_of("{" + asked(R"(["a"])", R"(,"model":"poet")") + "}"),
                  testing::with_leased_adapter(judging_model()), {.embedding_inputs_max = 4}, 9));
  EXPECT_EQ(work.engine[0].adapter, 7);
  EXPECT_TRUE(work.engine[0].lease);
}

TEST(Rerank, MakesARequestOfEachDocument) {
  const ServedModel model = judging_model();
  const auto texts = value_of(serve::PairText::create(model.tokenizer, model.pairs->config,
                                                      {.query = kQuery, .tokens_max = 100}));
  const VectorWork work = value_of(work_of(asked(R"(["a lease",{"text":"x","id":7}])")));
  ASSERT_EQ(work.engine.size(), 2u);
  EXPECT_EQ(work.engine[0].prompt, value_of(texts.encode("a lease")).tokens);
  EXPECT_EQ(work.engine[1].prompt, value_of(texts.encode("x")).tokens);
  for (const serve::EngineRequest& one : work.engine) {
    EXPECT_EQ(one.tokens_max, 0);
    EXPECT_EQ(one.tenant, 9u);
    ASSERT_TRUE(one.vector.has_value());
    EXPECT_EQ(one.vector->second_begin, ops::kFirstTypeAlone);
    EXPECT_FALSE(one.vector->form.normalise);
  }
}

TEST(Rerank, AnswersAreSortedByLogits) {
  const auto results = [](const std::string& more) {
    const VectorWork work = value_of(work_of(asked(R"(["a","b","c","d"])", more)));
    // The second and the last have the same sigmoid.
    const Json json = json_of(work.write({{-1}, {40}, {-1}, {50}}, 57, "rerank-1"));
    EXPECT_EQ(json["id"], "rerank-1");
    EXPECT_EQ(json["model"], "tiny");
    EXPECT_EQ(json["usage"], (Json{{"prompt_tokens", 57}, {"total_tokens", 57}}));
    return json["results"];
  };
  const auto order = [](const Json& list) {
    std::vector<int> indices;
    for (const Json& one : list) indices.push_back(one["index"]);
    return indices;
  };
  const Json all = results("");
  EXPECT_EQ(order(all), (std::vector<int>{3, 1, 0, 2}));
  EXPECT_EQ(all[0]["relevance_score"], 1.0);
  EXPECT_FLOAT_EQ(all[2]["relevance_score"].get<float>(), 0.26894142f);
  EXPECT_FALSE(all[0].contains("document"));
  EXPECT_EQ(order(results(R"(,"top_n":2)")), (std::vector<int>{3, 1}));
  EXPECT_EQ(order(results(R"(,"top_n":9)")).size(), 4u);
  const Json raw = results(R"(,"use_activation":false,"return_documents":true)");
  EXPECT_EQ(raw[1]["relevance_score"], 40.0);
  EXPECT_EQ(raw[1]["document"], (Json{{"text", "b"}}));
}

TEST(Rerank, RefusesWhatIsWrongByItsField) {
  const auto refused = [](const std::string& members, const std::string& field,
                          const std::string& part) {
    expect_refused({{members, field, part}}, work_of);
  };
  refused(R"("documents":["a"])", "query", "what is looked for");
  refused(R"("query":"","documents":["a"])", "query", "what is looked for");
  refused(R"("query":["a"],"documents":["a"])", "query", "query must be");
  refused(R"("query":"a")", "documents", "and is missing");
  refused(asked("[]"), "documents", "1 to 4 texts");
  refused(asked(R"(["a","b","c","d","e"])"), "documents", "found 5");
  refused(asked(R"("a")"), "documents", "found \"a\"");
  refused(asked(R"(["a",3])"), "documents", "document 1 must be");
  refused(asked(R"([{"txt":"a"}])"), "documents", "document 0 must be");
  refused(asked(R"(["a"])", R"(,"top_n":0)"), "top_n", "top_n");
  refused(asked(R"(["a"])", R"(,"instruction":"b")"), "instruction", "takes no instruction");
  refused(asked(R"(["a"])", R"(,"max_tokens_per_doc":5)"), "max_tokens_per_doc",
          "truncate_prompt_tokens");
  EXPECT_EQ(work_of(asked(R"(["a"])", R"(,"model":"other")")).error().status, 404);
  refused(asked(R"(["a"])", R"(,"truncate_prompt_tokens":0)"), "truncate_prompt_tokens", "found 0");
  refused(asked(R"(["a"])", R"(,"truncate_prompt_tokens":101)"), "truncate_prompt_tokens", "100");
  refused(asked(R"(["a"])", R"(,"truncate_prompt_tokens":5)"), "query", "shorten the query");
  const std::string word(300, 'x');
  refused(asked(R"(["a",")" + word + "\"]"), "documents", "document 1: query and document have ");
  refused(asked(R"([")" + word + "\"]"), "documents",
          "shorten the document, or set truncate_prompt_tokens to -1 (or serve more)");
}

TEST(Rerank, CutsDocumentsWhereAsked) {
  const std::string word(300, 'x');
  const auto length = [&](const std::string& limit) {
    const auto work = work_of(asked("[\"" + word + "\"]", R"(,"truncate_prompt_tokens":)" + limit));
    return value_of(work).engine[0].prompt.size();
  };
  EXPECT_EQ(length("-1"), 100u);
  EXPECT_EQ(length("40"), 40u);
}

TEST(Rerank, BrokenBodiesAreRefusedOrServed) {
  const std::string whole =
      "{" +
      asked(R"(["a",{"text":"b"}])",
            R"(,"top_n":1,"return_documents":true,"truncate_prompt_tokens":-1,"user":"u")") +
      "}";
  int served = 0, refused = 0;
  for (uint64_t round = 0; round < fuzz_rounds(160); ++round) {
    Rng rng(derive_key(round, "rerank"));
    std::string body = whole;
    for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
      body[rng.below(body.size())] = R"({}[]",:0-9etn)"[rng.below(13)];
    }
    const auto json = parse_json(body, "fuzz");
    if (!json || !json->is_object()) continue;
    const auto work = rerank_work(*json, judging_model(), {.embedding_inputs_max = 4}, 9);
    ++(work ? served : refused);
    EXPECT_TRUE(work || !work.error().message.empty());
  }
  EXPECT_GT(served, 0);
  EXPECT_GT(refused, 0);
}

TEST(RerankServer, GivesTheScoresOfAnEmbedder) {
  JudgingServer judging;
  const std::vector<std::string> documents = {"x", "The tenant pays.", "", std::string(60, 'w')};
  const std::vector<float> scores = scores_of(documents);
  const std::vector<float> logits = scores_of(documents, /*raw=*/true);
  const auto response = judging.post({{"query", kQuery}, {"documents", documents}});
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_THAT(response.field("x-request-id"), StartsWith("rerank-"));
  const Json json = json_of(response.body);
  EXPECT_EQ(json["id"], response.field("x-request-id"));
  ASSERT_EQ(json["results"].size(), 4u);
  float before = INFINITY;
  for (const Json& one : json["results"]) {
    const size_t index = one["index"];
    EXPECT_EQ(one["relevance_score"].get<float>(), scores[index]);
    EXPECT_LE(logits[index], before);
    before = logits[index];
  }
  EXPECT_GT(json["usage"]["prompt_tokens"].get<int>(), 60);
  const auto second = judging.server.post(
      "/v2/rerank", Json{{"query", kQuery}, {"documents", documents}, {"top_n", 1}}.dump());
  EXPECT_EQ(json_of(second.body)["results"][0], json["results"][0]);
  EXPECT_TRUE(soon([&] { return judging.server.idle(); }));
}

TEST(RerankServer, ManyClientsGetTheScoresTheyWouldGetAlone) {
  JudgingServer judging;
  std::vector<std::string> documents;
  for (int i = 0; i < 16; ++i) {
    documents.push_back(std::string(static_cast<size_t>(4 * i), static_cast<char>('a' + i)));
  }
  const std::vector<float> scores = scores_of(documents);
  std::vector<std::thread> clients;
  std::atomic<int> compared{0};
  for (size_t client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (size_t round = 0; round < 8; ++round) {
        Rng rng(derive_key(client * 100 + round, "rerank clients"));
        std::vector<std::string> some;
        std::vector<float> wanted;
        for (uint64_t i = 1 + rng.below(5); i > 0; --i) {
          const size_t which = rng.below(documents.size());
          some.push_back(documents[which]);
          wanted.push_back(scores[which]);
        }
        const auto response = judging.post({{"query", kQuery}, {"documents", some}});
        ASSERT_EQ(response.status, 200) << response.body;
        const Json answer = json_of(response.body);
        for (const Json& one : answer["results"]) {
          EXPECT_EQ(one["relevance_score"].get<float>(), wanted[one["index"].get<size_t>()]);
          ++compared;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GE(compared, 48);
  EXPECT_TRUE(soon([&] { return judging.server.idle(); }));
}

TEST(RerankServer, TakesNoOtherRequestsAndOthersTakeNoneOfIts) {
  JudgingServer judging;
  const auto chat = judging.server.post("/v1/chat/completions", R"({"messages":[]})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(json_of(chat.body)["error"]["code"], "rerank_only");
  EXPECT_THAT(chat.body, HasSubstr("POST /v1/rerank"));
  const auto vectors = judging.server.post("/v1/embeddings", R"({"input":"a"})");
  EXPECT_EQ(vectors.status, 400);
  EXPECT_EQ(json_of(vectors.body)["error"]["code"], "no_embeddings");
  const Json model = json_of(judging.server.get("/v1/models").body)["data"][0];
  EXPECT_EQ(model["type"], "rerank");
  EXPECT_EQ(model["max_model_len"], 100);

  TestServer answering;
  const auto refused = answering.post("/v1/rerank", "{" + asked(R"(["a"])") + "}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json_of(refused.body)["error"]["code"], "no_rerank");
  EXPECT_THAT(refused.body, HasSubstr("--rerank"));
}

}  // namespace
}  // namespace jige::api
