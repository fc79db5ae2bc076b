// POST /v1/responses and /v1/messages of a whole server: the answers of a chat that asks the same,
// errors in the form of each, keys, clients that go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/protocol_test_support.h"
#include "api/service_test_support.h"

namespace jige::api {
namespace {

using testing::events_of;
using ::testing::HasSubstr;
using testing::json_of;
using testing::request_text;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;

// A chat of 20 tokens and the same of the others.
const std::string kSameDraws = R"("seed":3,"ignore_eos":true)";
const std::string kOneTurn = R"("messages":[{"role":"user","content":"Hello"}])";
const std::string kChatBody = "{" + kSameDraws + "," + kOneTurn + R"(,"max_tokens":20})";
const std::string kResponseBody = "{" + kSameDraws + R"(,"input":"Hello","max_output_tokens":20})";
const std::string kMessageBody = kChatBody;

std::string as_stream(const std::string& body) {
  return body.substr(0, body.size() - 1) + R"(,"stream":true})";
}

std::string chat_text(TestServer& server) {
  const TestResponse chat = server.post("/v1/chat/completions", kChatBody);
  return json_of(chat.body)["choices"][0]["message"]["content"];
}

TEST(ProtocolService, ResponsesAreWhatAChatAnswers) {
  TestServer server;
  const std::string text = chat_text(server);
  const TestResponse whole = server.post("/v1/responses", kResponseBody);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json answer = json_of(whole.body);
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(answer["status"], "incomplete");
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(answer["usage"]["output_tokens"], 20);
  EXPECT_THAT(whole.field("x-jige-timing"), HasSubstr("decode_ms"));

  const TestResponse stream = server.post("/v1/responses", as_stream(kResponseBody));
  EXPECT_EQ(stream.field("Content-Type"), "text/event-stream; charset=utf-8");
  const std::vector<Json> events = events_of(stream.body);
  EXPECT_EQ(testing::joined_items(events)[0]["content"], answer["output"][0]["content"]);
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  EXPECT_EQ(events.back()["response"]["usage"]["output_tokens"], 20);
}

TEST(ProtocolService, MessagesAreWhatAChatAnswers) {
  TestServer server;
  const std::string text = chat_text(server);
  const TestResponse whole = server.post("/v1/messages?beta=true", kMessageBody);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json answer = json_of(whole.body);
  EXPECT_EQ(answer["content"][0]["text"], text);
  EXPECT_EQ(answer["stop_reason"], "max_tokens");
  EXPECT_EQ(answer["usage"]["output_tokens"], 20);
  const Json message =
      testing::joined_message(events_of(server.post("/v1/messages", as_stream(kMessageBody)).body));
  EXPECT_EQ(message["content"], answer["content"]);
  EXPECT_EQ(message["stop_reason"], "max_tokens");

  const Json counted = json_of(server.post("/v1/messages/count_tokens", "{" + kOneTurn + "}").body);
  EXPECT_EQ(counted["input_tokens"], answer["usage"]["input_tokens"].get<int64_t>() +
                                         answer["usage"]["cache_read_input_tokens"].get<int64_t>());
}

TEST(ProtocolService, ErrorsOfMessagesHaveTheirForm) {
  TestServer server({.http = {.body_bytes_max = 4096}});
  const auto error_of = [](const TestResponse& response) {
    const Json json = json_of(response.body);
    EXPECT_EQ(json["type"], "error") << response.body;
    EXPECT_FALSE(json["error"]["message"].get<std::string>().empty());
    return std::to_string(response.status) + " " + json["error"]["type"].get<std::string>();
  };
  const std::string path = "/v1/messages";
  EXPECT_EQ(error_of(server.post(path, "{")), "400 invalid_request_error");
  EXPECT_EQ(error_of(server.post(path, "{}")), "400 invalid_request_error");
  EXPECT_EQ(error_of(server.post(path + "/count_tokens", "{}")), "400 invalid_request_error");
  EXPECT_EQ(error_of(server.post(path, R"({"model":"other","max_tokens":1,)" + kOneTurn + "}")),
            "404 not_found_error");
  EXPECT_EQ(error_of(server.post(path + "/batches", "{}")), "404 not_found_error");
  EXPECT_EQ(error_of(server.get(path)), "405 invalid_request_error");
  server.service().begin_drain();
  EXPECT_EQ(error_of(server.post(path, kMessageBody)), "503 overloaded_error");
  EXPECT_THAT(server.post("/v1/responses", kResponseBody).body, HasSubstr("\"param\":null"));
}

TEST(ProtocolService, AKeyMayComeInEitherHeader) {
  TestServer server({.service = {.keys = ApiKeys({"a-secret-key"})}});
  const auto status = [&](const std::string& field) {
    return server.post("/v1/messages", kMessageBody, field).status;
  };
  EXPECT_EQ(status("x-api-key: a-secret-key\r\n"), 200);
  EXPECT_EQ(status("X-Api-Key:  a-secret-key \r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer a-secret-key\r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer wrong-key\r\nx-api-key: a-secret-key\r\n"), 200);
  EXPECT_EQ(status("x-api-key: a-secret-kez\r\n"), 401);
  EXPECT_EQ(status("x-api-key: Bearer a-secret-key\r\n"), 401);
  const TestResponse refused = server.post("/v1/messages", kMessageBody);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(json_of(refused.body)["error"]["type"], "authentication_error");
}

TEST(ProtocolService, ClientsThatGoFreeTheirBlocks) {
  TestServer server({.iteration_ms = 2});
  for (const auto& [path, body, mark] :
       {std::tuple("/v1/responses", kResponseBody, "output_text.delta"),
        {"/v1/messages", kMessageBody, "text_delta"}}) {
    std::string longer = as_stream(body);
    longer.replace(longer.find(":20"), 3, ":90");
    TestClient client(server.port());
    client.send(request_text("POST", path, longer));
    EXPECT_NE(client.read_until(mark), "") << path;
    client.reset();
    EXPECT_TRUE(soon([&] { return server.idle(); })) << path;
  }
  const std::string metrics = server.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("handler=\"/v1/responses\""));
  EXPECT_THAT(metrics, HasSubstr("handler=\"/v1/messages\""));
}

TEST(ProtocolService, StreamsThatTheServerCutsOffEndWellFormed) {
  for (const auto& [path, body, mark, end] :
       {std::tuple("/v1/responses", kResponseBody, "output_text.delta", "response.failed"),
        {"/v1/messages", kMessageBody, "text_delta", "\"stop_reason\":\"abort\""}}) {
    TestServer server({.iteration_ms = 3});
    std::string longer = as_stream(body);
    longer.replace(longer.find(":20"), 3, ":90");
    TestClient client(server.port());
    client.send(request_text("POST", path, longer));
    EXPECT_NE(client.read_until(mark), "") << path;
    server.engine().stop();
    EXPECT_NE(client.read_until(end), "") << path;
  }
}

}  // namespace
}  // namespace jige::api
