// Adapters as clients see them: chosen by "model", listed, counted.
#include <gmock/gmock.h>

#include "api/service_test_support.h"
#include "serve/adapter_folders.h"

namespace jige::api {
namespace {

using serve::testing::AdapterFolders;
using testing::completion_body;
using ::testing::HasSubstr;
using testing::json_of;
using testing::TestResponse;
using testing::TestServer;
using testing::text_of;

class AdapterRoutes : public ::testing::Test {
 protected:
  std::string text_with(const std::string& model) {
    const TestResponse response =
        server_.post("/v1/completions", completion_body(1, 30, ",\"temperature\":0" + model));
    EXPECT_EQ(response.status, 200) << response.body;
    return text_of(response);
  }
  AdapterFolders folders_{"llama3"};
  TestServer server_{{.adapters = folders_.sources}};
};

TEST_F(AdapterRoutes, TheModelOfARequestChooses) {
  const std::string base = text_with("");
  EXPECT_EQ(text_with(R"(,"model":"tiny")"), base);
  std::vector<std::string> texts = {base};
  for (const char* name : {"all", "some", "other"}) {
    texts.push_back(text_with(std::string(R"(,"model":")") + name + "\""));
    EXPECT_EQ(std::ranges::count(texts, texts.back()), 1) << name;
  }
  const Json answer = json_of(
      server_.post("/v1/completions", R"({"prompt":["a","b"],"model":"some","max_tokens":3})")
          .body);
  EXPECT_EQ(answer["model"], "some");
  EXPECT_EQ(answer["system_fingerprint"], "test-some");
  const TestResponse chat = server_.post(
      "/v1/chat/completions", R"({"model":"all","messages":[{"role":"user","content":"hi"}],)"
                              R"("max_tokens":3,"stream":true})");
  EXPECT_THAT(chat.body, HasSubstr(R"("model":"all")"));
}

TEST_F(AdapterRoutes, ModelsListsBaseAndAdapters) {
  const Json data = json_of(server_.get("/v1/models").body)["data"];
  ASSERT_EQ(data.size(), 4u);
  EXPECT_EQ(data[0]["id"], "tiny");
  EXPECT_EQ(data[0]["root"], "tiny");
  EXPECT_TRUE(data[0]["parent"].is_null());
  EXPECT_EQ(data[2]["id"], "some");
  EXPECT_EQ(data[2]["root"], "some folder");
  EXPECT_EQ(data[2]["parent"], "tiny");
  EXPECT_EQ(json_of(server_.get("/v1/models/other").body)["parent"], "tiny");
  EXPECT_EQ(server_.get("/v1/models/nobody").status, 404);
}

TEST_F(AdapterRoutes, UnknownNamesAreNotFoundAndHearOfThoseThatAre) {
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const TestResponse response = server_.post(path, R"({"prompt":"a","model":"nobody"})");
    EXPECT_EQ(response.status, 404);
    const Json error = json_of(response.body)["error"];
    EXPECT_EQ(error["code"], "model_not_found");
    EXPECT_EQ(error["message"],
              "the model \"nobody\" is not served here; \"tiny\", \"all\", \"some\", "
              "\"other\" are");
  }
  EXPECT_EQ(server_.post("/tokenize", R"({"prompt":"a","model":"some"})").status, 200);
}

TEST_F(AdapterRoutes, MetricsCountRequestsByAdapter) {
  text_with(R"(,"model":"some")");
  text_with(R"(,"model":"some")");
  text_with("");
  const std::string metrics = server_.get("/metrics").body;
  for (const char* line : {R"(jige:adapter_requests_total{model_name="tiny",adapter="some"} 2)",
                           R"(jige:adapter_requests_total{model_name="tiny",adapter="all"} 0)",
                           R"(jige:requests_received_total{model_name="tiny"} 3)"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_EQ(json_of(server_.get("/top").body)["adapters"], Json({"all", "some", "other"}));
}

}  // namespace
}  // namespace jige::api
