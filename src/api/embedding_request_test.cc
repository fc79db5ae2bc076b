// What POST /v1/embeddings asks for: what is read, what is refused, and with which field's name.
#include "api/embedding_request.h"

#include "api/request_test_support.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::expect_refused;
using testing::json_of;
using testing::value_of;
using Ids = std::vector<int32_t>;

ServedModel embedding_model() {
  ServedModel model = testing::test_model();
  model.embedding = testing::test_embedding();
  return model;
}

ApiResult<PreparedEmbeddings> embeddings(const std::string& members) {
  return prepare_embeddings(json_of("{" + members + "}"), embedding_model(),
                            {.embedding_inputs_max = 4, .embedding_numbers_max = 72}, 9);
}

Ids ids_of(const std::string& text) {
  return value_of(testing::character_tokenizer().encode(text, {}));
}

TEST(EmbeddingRequest, InputsComeInFourForms) {
  const auto prompts = [](const std::string& input) {
    std::vector<Ids> lists;
    for (const auto& request : value_of(embeddings(R"("input":)" + input)).engine) {
      lists.push_back(request.prompt);
      EXPECT_EQ(request.tokens_max, 0);
      EXPECT_EQ(request.tenant, 9u);
      EXPECT_TRUE(request.vector);
      EXPECT_EQ(request.vector->prompt_count, 0);
    }
    return lists;
  };
  using Lists = std::vector<Ids>;
  EXPECT_EQ(prompts(R"("ab")"), (Lists{ids_of("ab")}));
  EXPECT_EQ(prompts(R"(["ab","c"])"), (Lists{ids_of("ab"), ids_of("c")}));
  EXPECT_EQ(prompts("[5,6.0,7]"), (Lists{{5, 6, 7}}));
  EXPECT_EQ(prompts("[[5],[6,7]]"), (Lists{{5}, {6, 7}}));
  EXPECT_EQ(prompts(R"(["ab",[6,7]])"), (Lists{ids_of("ab"), {6, 7}}));
}

TEST(EmbeddingRequest, HoldsItsAdapter) {
  const auto read = value_of(prepare_embeddings(json_of(R"({"model":"poet","input":["a","b"]})"),
                                                testing::with_leased_adapter(embedding_model()),
                                                {.embedding_inputs_max = 4}, 9));
  for (const serve::EngineRequest& request : read.engine) {
    EXPECT_EQ(request.adapter, 7);
    EXPECT_TRUE(request.lease);
  }
}

TEST(EmbeddingRequest, FieldsSayWhatVectorsAreLike) {
  const auto plain = value_of(embeddings(R"("input":"a","user":"u","encoding_format":"float")"));
  EXPECT_FALSE(plain.base64);
  EXPECT_EQ(plain.engine[0].vector->form.dimensions, 0);
  EXPECT_EQ(plain.engine[0].vector->form.pooling, formats::PoolingKind::kMean);
  const auto other = value_of(embeddings(
      R"("input":"a","model":"tiny","encoding_format":"base64","dimensions":7,"prompt":null)"));
  EXPECT_TRUE(other.base64);
  EXPECT_EQ(other.engine[0].vector->form.dimensions, 7);

  const auto named = value_of(embeddings(R"("input":"a","prompt_name":"query")"));
  EXPECT_EQ(named.engine[0].prompt, ids_of("Query: a"));
  EXPECT_EQ(named.engine[0].vector->prompt_count, 7);
  const auto given = value_of(embeddings(R"("input":"a","prompt":"Q:")"));
  EXPECT_EQ(given.engine[0].prompt, ids_of("Q:a"));

  const std::string text(200, 'a');
  const auto cut = value_of(embeddings(R"("truncate":true,"input":")" + text + "\""));
  EXPECT_EQ(cut.engine[0].prompt, ids_of(text.substr(100)));

  ServedModel by_user = embedding_model();
  by_user.embedding->by_user = true;
  by_user.embedding->config.default_prompt = "title";
  const auto mine =
      value_of(prepare_embeddings(json_of(R"({"input":"a","user":"u"})"), by_user, {}, 9));
  EXPECT_NE(mine.engine[0].tenant, 9u);
  EXPECT_EQ(mine.engine[0].prompt, ids_of("Ta")) << "the folder's default";
  const auto raw = value_of(prepare_embeddings(json_of(R"({"input":[5]})"), by_user, {}, 9));
  EXPECT_EQ(raw.engine[0].prompt, Ids{5}) << "nothing is put before ids";
}

TEST(EmbeddingRequest, RefusalsNameFieldValueAndRemedy) {
  const std::string text(101, 'a');
  const Json ids = Ids(101, 5);
  expect_refused(
      {
          {R"("model":"tiny")", "input", "input is missing"},
          {R"("input":null)", "input", "input is missing"},
          {R"("input":7)", "input", "a list of texts, a list of token ids"},
          {R"("input":{"a":1})", "input", "found an object"},
          {R"("input":[])", "input", "1 to 3 texts, with vectors of 24 numbers, found 0"},
          {R"("input":["a","b","c","d"])", "input", "found 4; send fewer"},
          {R"("dimensions":2,"input":["a","b","c","d","e"])", "input", "1 to 4 texts"},
          {R"("input":"")", "input", "leave it out"},
          {R"("input":["a",""])", "input", "input 1: the text is empty"},
          {R"("input":["a",7])", "input", "input 1 must be a text or a list of token ids, found 7"},
          {R"("input":["a",null])", "input", "input 1 must be"},
          {R"("input":[["a"]])", "input", "input must be"},
          {R"("input":[[5],[]])", "input", "input 1 must be"},
          {R"("input":[5,96])", "input", "from 0 to 95, found 96"},
          {R"("input":[5,-1])", "input", "found -1"},
          {R"("input":[5,"a"])", "input", "found \"a\""},
          {R"("input":[5,1e30])", "input", "found 1e+30"},
          {R"("input":")" + text + "\"", "input",
           "has 101 tokens, and 100 are allowed; shorten it, or set truncate to true (or serve"},
          {R"("input":["a",)" + ids.dump() + "]", "input", "input 1: the text has 101 tokens"},
          {R"("input":"a","encoding_format":"hex")", "encoding_format", "found \"hex\""},
          {R"("input":"a","encoding_format":1)", "encoding_format", "1"},
          {R"("input":"a","dimensions":0)", "dimensions", "from 1 to 24"},
          {R"("input":"a","dimensions":25)", "dimensions", "found 25"},
          {R"("input":"a","dimensions":"2")", "dimensions", "\"2\""},
          {R"("input":"a","truncate":"yes")", "truncate", "yes"},
          {R"("input":"a","prompt_name":"qwery")", "prompt_name", "the prompts query, title"},
          {R"("input":"a","prompt_name":"query","prompt":"b")", "prompt_name", "give one of them"},
          {R"("input":[5],"prompt_name":"query")", "input", "put its ids in front"},
          {R"("input":"","prompt_name":"query")", "input", "belong to the prompt"},
          {R"("input":"a","prompt":")" + text + "\"", "input", "102 tokens"},
      },
      embeddings);
  const auto unknown = embeddings(R"("input":"a","model":"other")");
  EXPECT_EQ(unknown.error().status, 404);
  EXPECT_EQ(unknown.error().param, "model");
}

TEST(EmbeddingRequest, EveryMutationIsReadOrRefused) {
  const std::vector<std::string> seeds = {
      R"({"model":"tiny","input":["ab",[5,6]],"encoding_format":"base64","dimensions":3})",
      R"({"input":[[5,6],[7]],"user":"u","truncate":true})",
      R"({"input":"é\u0000</s>","prompt_name":"query","dimensions":24})",
      R"({"input":[5,6,7],"prompt":null,"encoding_format":"float"})"};
  const std::vector<std::string> snippets = {"null",     "-1", "1e308", "99999999999999999999",
                                             "[[[[[[",   "{}", "\"\"",  "\\u0000",
                                             "\xf0\x9f", ",",  ":",     "\"",
                                             "]",        "}",  "true",  "0.1",
                                             "[]",       "96"};
  const ServedModel model = embedding_model();
  int read = 0, refused = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(1600); ++seed) {
    Rng rng(derive_key(seed, "embedding mutation"));
    std::string body = seeds[rng.below(seeds.size())];
    for (uint64_t i = rng.below(5); i > 0; --i) {
      const size_t at = rng.below(body.size());
      if (rng.below(3) == 0) {
        body[at] = static_cast<char>(rng.below(256));
      } else {
        body.replace(at, rng.below(5), snippets[rng.below(snippets.size())]);
      }
      if (body.empty()) body = "x";
    }
    const auto json = parse_body(body);
    if (!json) {
      ++refused;
      continue;
    }
    const auto prepared = prepare_embeddings(*json, model, {}, seed);
    if (!prepared) {
      ++refused;
      EXPECT_TRUE(prepared.error().status == 400 || prepared.error().status == 404);
      EXPECT_FALSE(prepared.error().message.empty());
      json_of(dump_json(error_json(prepared.error())));
      continue;
    }
    ++read;
    ASSERT_FALSE(prepared->engine.empty());
    for (const serve::EngineRequest& request : prepared->engine) {
      EXPECT_GE(request.prompt.size(), 1u);
      EXPECT_LE(request.prompt.size(), 100u);
      EXPECT_LT(request.vector->prompt_count, std::ssize(request.prompt));
      EXPECT_LE(request.vector->form.dimensions, 24);
    }
  }
  EXPECT_GT(read, 200);
  EXPECT_GT(refused, 600);
}

}  // namespace
}  // namespace jige::api
