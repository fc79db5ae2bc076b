// Whose pages may use the server: the list, and what the server does with it over sockets.
#include "api/allowed_origins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_test_support.h"

namespace jige::api {
namespace {

using testing::completion_body;
using testing::fetch;
using ::testing::HasSubstr;
using testing::json_of;
using ::testing::Not;
using testing::request_text;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;
using testing::TestServerOptions;

constexpr const char* kAllow = "Access-Control-Allow-Origin";
constexpr const char* kPage = "https://chat.example";

AllowedOrigins origins_of(std::string_view list) {
  auto parsed = AllowedOrigins::parse(list, "--allowed-origins");
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed ? *parsed : AllowedOrigins();
}

std::string from(std::string_view origin) { return "Origin: " + std::string(origin) + "\r\n"; }

std::string preflight_of(std::string_view origin,
                         std::string_view fields = "authorization, content-type") {
  return from(origin) + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: " +
         std::string(fields) + "\r\n";
}

TestServerOptions with_origins(std::string_view list) {
  TestServerOptions options;
  options.http.origins = origins_of(list);
  return options;
}

TEST(AllowedOrigins, AdmitsThoseOfTheList) {
  const AllowedOrigins some =
      origins_of("https://Chat.example:443, http://10.0.0.5:3000,tauri://localhost,http://[::2]");
  for (const char* origin :
       {"https://chat.example", "http://10.0.0.5:3000", "tauri://localhost", "http://[::2]"}) {
    EXPECT_TRUE(some.admits(origin)) << origin;
  }
  for (const char* origin :
       {"", "null", "*", "http://chat.example", "https://chat.example.evil",
        "https://chat.example:", "https://chat.example/", "https://chat.exampl",
        "https://chat.example:4430", "https://evil.chat.example", "http://10.0.0.5",
        "http://10.0.0.50:3000", "chat.example", "http://localhost",
        "https://chat.example,http://10.0.0.5:3000"}) {
    EXPECT_FALSE(some.admits(origin)) << origin;
    EXPECT_FALSE(AllowedOrigins().admits(origin)) << origin;
    EXPECT_TRUE(origins_of("*").admits(origin)) << origin;
  }
}

TEST(AllowedOrigins, PagesOfThisMachineAreOfAnyPort) {
  const AllowedOrigins local = origins_of("localhost");
  for (const char* origin : {"http://localhost", "http://localhost:3000", "https://localhost:8443",
                             "http://127.0.0.1:5173", "http://[::1]:1"}) {
    EXPECT_TRUE(local.admits(origin)) << origin;
  }
  for (const char* origin :
       {"http://localhost.evil.example", "http://localhost:", "http://localhost:3000.evil",
        "http://localhost:300000", "http://127.0.0.10", "http://evil/localhost", "null",
        "localhost", "ftp://localhost", "http://localhost@evil.example", "http://[::1",
        "http://[::1]evil"}) {
    EXPECT_FALSE(local.admits(origin)) << origin;
  }
}

TEST(AllowedOrigins, RefusesWhatNoBrowserSends) {
  for (const std::string& list :
       {std::string("chat.example"), std::string("https://chat.example/"), std::string("null"),
        std::string("https://"), std::string("://a"), std::string("https://a/b"),
        std::string("https://*.example"), std::string("https://a:b"), std::string("https://a:"),
        std::string("https://a:123456"), std::string("[\"*\"]"), std::string(","),
        std::string("https://a,"), std::string("https://a\r\nx: y"), std::string("https://a b"),
        std::string("https://\xc3\xa4.example"), std::string("http://[::1"),
        std::string("https://u@a"), "https://" + std::string(1000, 'a')}) {
    const auto parsed = AllowedOrigins::parse(list, "--allowed-origins");
    ASSERT_FALSE(parsed) << list;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("--allowed-origins: "));
  }
}

TEST(AllowedOrigins, PagesAreRefusedUnlessTheyAreNamed) {
  TestServer server;
  for (const std::string& origin :
       {std::string(kPage), std::string("null"), std::string(""), std::string("http://localhost"),
        std::string(10'000, 'o'), std::string("a\tb \x80\xff"), std::string("\"'<script>")}) {
    for (const TestResponse& response :
         {server.post("/v1/completions", completion_body(1, 5), from(origin)),
          server.get("/v1/models", from(origin)), server.get("/health", from(origin)),
          fetch(server.port(), "OPTIONS", "/v1/completions", "", preflight_of(origin))}) {
      EXPECT_EQ(response.status, 403) << origin;
      EXPECT_EQ(response.field(kAllow), "");
      EXPECT_EQ(response.field("Vary"), "Origin");
      const Json error = json_of(response.body)["error"];
      EXPECT_EQ(error["code"], "origin_not_allowed");
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--allowed-origins"));
      EXPECT_LT(response.body.size(), 1000u);
    }
  }
  EXPECT_EQ(server.http_stats().requests_refused, 28);
  EXPECT_EQ(server.engine().status().counters.prompt_tokens, 0);
  const TestResponse program = server.post("/v1/completions", completion_body(1, 5));
  EXPECT_EQ(program.status, 200) << "programs send no Origin";
  EXPECT_THAT(program.head, Not(HasSubstr("Access-Control")));
  const TestResponse messages = server.post("/v1/messages", "{}", from(kPage));
  EXPECT_EQ(json_of(messages.body)["error"]["type"], "permission_error");
  EXPECT_EQ(json_of(messages.body)["type"], "error");
}

TEST(AllowedOrigins, ControlBytesAndSecondOriginsAreNoRequest) {
  TestServer server(with_origins("*"));
  for (const std::string& fields :
       {from("a\x01"), from("a\rb"), from(std::string("a\0b", 3)), from(kPage) + from(kPage)}) {
    const TestResponse response = server.get("/v1/models", fields);
    EXPECT_EQ(response.status, 400) << fields;
  }
}

TEST(AllowedOrigins, EveryAnswerToANamedPageSaysSo) {
  TestServerOptions options = with_origins("https://other.example," + std::string(kPage));
  options.service.keys = ApiKeys({"some-secret-key"});
  options.http.body_bytes_max = 1000;
  TestServer server(std::move(options));
  const std::string page = from(kPage);
  const std::string key = "Authorization: Bearer some-secret-key\r\n";
  const std::string streamed = completion_body(1, 5, R"(,"stream":true)");
  const std::vector<std::pair<int, TestResponse>> answers = {
      {200, server.post("/v1/completions", completion_body(1, 5), page + key)},
      {200, server.post("/v1/completions", streamed, page + key)},
      {200, server.get("/health", page)},
      {400, server.post("/v1/completions", "{", page + key)},
      {400, server.get("/%", page + key)},
      {401, server.post("/v1/completions", completion_body(1, 5), page)},
      {404, server.get("/nowhere", page + key)},
      {405, server.get("/v1/completions", page + key)},
      {413, server.post("/v1/completions", std::string(2000, ' '), page + key)},
      {431, server.get("/health", page + "X: " + std::string(20'000, 'x') + "\r\n")},
      {501, server.post("/v1/completions", "", page + key + "Transfer-Encoding: gzip\r\n")},
  };
  for (const auto& [status, response] : answers) {
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.field(kAllow), kPage) << status;
    EXPECT_EQ(response.field("Vary"), "Origin") << status;
    EXPECT_EQ(response.field("Access-Control-Expose-Headers"), "*") << status;
  }
  EXPECT_THAT(answers[1].second.body, HasSubstr("data: [DONE]"));
}

TEST(AllowedOrigins, AnswersPagesThatAskIfTheyMayWithoutAKey) {
  TestServerOptions options = with_origins(kPage);
  options.service.keys = ApiKeys({"some-secret-key"});
  TestServer server(std::move(options));
  const std::string wanted = "authorization,content-type,x-stainless-os";
  TestClient client(server.port());
  client.send(request_text("OPTIONS", "/v1/chat/completions", "", preflight_of(kPage, wanted)));
  const TestResponse asked = client.read_response();
  EXPECT_EQ(asked.status, 200);
  EXPECT_EQ(asked.body, "");
  EXPECT_EQ(asked.field(kAllow), kPage);
  EXPECT_EQ(asked.field("Access-Control-Allow-Headers"), wanted);
  EXPECT_EQ(asked.field("Access-Control-Allow-Methods"), "GET, POST");
  EXPECT_EQ(asked.field("Access-Control-Max-Age"), "600");
  EXPECT_EQ(asked.field("Vary"), "Origin");
  EXPECT_THAT(asked.head, Not(HasSubstr("Credentials")));
  // On the same connection the request itself, and then a program's, which shares nothing with it.
  const std::string key = "Authorization: Bearer some-secret-key\r\n";
  client.send(request_text("GET", "/v1/models", "", from(kPage) + key));
  EXPECT_EQ(client.read_response().field(kAllow), kPage);
  client.send(request_text("GET", "/v1/models", "", key));
  EXPECT_EQ(client.read_response().field(kAllow), "");
  client.send(request_text("GET", "/v1/models", "", from("https://evil.example") + key));
  const TestResponse other = client.read_response();
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.field(kAllow), "");
}

TEST(AllowedOrigins, NothingThatIsNoNameGoesBackToWhoAsks) {
  TestServer server(with_origins(kPage));
  for (const char* fields : {"a\"b", "x: y", "(a)", "a;b", "\xc3\xa4"}) {
    const TestResponse asked =
        fetch(server.port(), "OPTIONS", "/v1/models", "", preflight_of(kPage, fields));
    EXPECT_EQ(asked.status, 200) << fields;
    EXPECT_EQ(asked.field(kAllow), kPage);
    EXPECT_THAT(asked.head, Not(HasSubstr("Access-Control-Allow-Headers"))) << fields;
  }
  // What does not ask is an ordinary request.
  EXPECT_EQ(fetch(server.port(), "OPTIONS", "/v1/models", "", from(kPage)).status, 405);
  EXPECT_EQ(fetch(server.port(), "OPTIONS", "/v1/models").status, 405);
}

TEST(AllowedOrigins, AllOriginsGetTheSameAnswer) {
  TestServer server(with_origins("*"));
  for (const char* origin : {kPage, "null", "http://localhost:3000", "\"<>"}) {
    const TestResponse response =
        server.post("/v1/completions", completion_body(1, 5), from(origin));
    EXPECT_EQ(response.status, 200) << origin;
    EXPECT_EQ(response.field(kAllow), "*");
    EXPECT_EQ(response.field("Vary"), "");
    EXPECT_THAT(response.head, Not(HasSubstr(origin)));
    EXPECT_EQ(fetch(server.port(), "OPTIONS", "/v1/models", "", preflight_of(origin)).field(kAllow),
              "*");
  }
}

}  // namespace
}  // namespace jige::api
