// Images in requests to a whole server: what is answered, and what else goes on while they are
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "api/image_test_support.h"
#include "api/protocol_test_support.h"
#include "api/service_test_support.h"

namespace jige::api {
namespace {

using testing::data_url;
using ::testing::HasSubstr;
using testing::image_model;
using testing::image_part;
using testing::json_of;
using testing::kPlaceholder;
using testing::pixel_translator;
using testing::png_file;
using testing::request_text;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;
using testing::TestServerOptions;
using testing::text_part;

const std::string kDraws = R"("seed":3,"ignore_eos":true,"max_tokens":12)";

std::string image_chat(const std::string& file, const std::string& more = "") {
  return "{" + kDraws + more + R"(,"messages":[{"role":"user","content":[)" + text_part("a") + "," +
         image_part(data_url(file)) + "]}]}";
}

std::string plain_chat(const std::string& text) {
  return "{" + kDraws + R"(,"messages":[{"role":"user","content":")" + text + "\"}]}";
}

class ImageServer : public TestServer {
 public:
  explicit ImageServer(ImageTranslator translator = pixel_translator(),
                       ImageQueue::Limits limits = {}, HttpServerOptions http = {})
      : TestServer(options(std::move(http))) {
    set_model(image_model(std::move(translator), limits));
  }
  ~ImageServer() { service().stop(); }  // nothing of a test's is asked from then on

 private:
  static TestServerOptions options(HttpServerOptions http) {
    TestServerOptions options;
    options.tokenizer = testing::image_tokenizer();
    options.with_model = false;
    options.http = std::move(http);
    return options;
  }
};

// Reads images when it is told to, or fails when it is told to end.
class HeldTranslator {
 public:
  ImageTranslator translator() {
    ImageTranslator held = pixel_translator();
    held.read = [this, read = held.read](std::span<const int32_t> ids,
                                         std::span<const images::Image> images,
                                         const GoOn& go_on) -> Result<serve::ImagePrompt> {
      ++begun;
      while (!open) {
        if (const Status on = go_on(); !on) {
          ++ended;
          return tl::unexpected(on.error());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return read(ids, images, go_on);
    };
    return held;
  }
  std::atomic<int> begun{0}, ended{0};
  std::atomic<bool> open{false};
};

std::string chat_answer(const TestResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  if (response.status != 200) return "";
  return json_of(response.body)["choices"][0]["message"]["content"];
}

TEST(ImageService, AnImageIsWhatItsTokensAre) {
  ImageServer server;
  const std::string expected =
      chat_answer(server.post("/v1/chat/completions", plain_chat("(a)bbbbbb")));
  const TestResponse whole = server.post("/v1/chat/completions", image_chat(png_file(3, 2, 'b')));
  EXPECT_EQ(chat_answer(whole), expected);
  EXPECT_NE(chat_answer(server.post("/v1/chat/completions", image_chat(png_file(3, 2, 'c')))),
            expected);
  const Json usage = json_of(whole.body)["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 6 + 3 + 6);  // "<user>", "(a)" and the image
  EXPECT_EQ(usage["completion_tokens"], 12);
  const TestResponse stream =
      server.post("/v1/chat/completions", image_chat(png_file(3, 2, 'b'), R"(,"stream":true)"));
  std::string text;
  for (const Json& frame : testing::frames_of(stream.body)) {
    text += frame["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, expected);
}

TEST(ImageService, AllProtocolsAnswerTheSame) {
  ImageServer server;
  const std::string file = png_file(2, 2, 'q');
  const std::string expected = chat_answer(server.post("/v1/chat/completions", image_chat(file)));
  const TestResponse response = server.post(
      "/v1/responses",
      R"({"seed":3,"ignore_eos":true,"max_output_tokens":12,"input":[{"role":"user","content":[
         {"type":"input_text","text":"a"},{"type":"input_image","image_url":")" +
          data_url(file) + R"("}]}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json_of(response.body)["output"][0]["content"][0]["text"], expected);
  const std::string conversation =
      R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},
         {"type":"image","source":{"type":"base64","media_type":"image/png","data":")" +
      base64_text(file) + R"("}}]}]})";
  const TestResponse message = server.post("/v1/messages", "{" + kDraws + "," + conversation);
  ASSERT_EQ(message.status, 200) << message.body;
  EXPECT_EQ(json_of(message.body)["content"][0]["text"], expected);
  EXPECT_EQ(json_of(message.body)["usage"]["input_tokens"], 6 + 3 + 4);
  const TestResponse count = server.post("/v1/messages/count_tokens", "{" + conversation);
  EXPECT_EQ(json_of(count.body)["input_tokens"], 6 + 3 + 4);
}

TEST(ImageService, TellsWhetherImagesAreRead) {
  ImageServer server;
  EXPECT_EQ(json_of(server.get("/v1/models").body)["data"][0]["reads_images"], true);
  TestServer blind;
  EXPECT_EQ(json_of(blind.get("/v1/models").body)["data"][0]["reads_images"], false);
  const TestResponse refused = blind.post("/v1/chat/completions", image_chat(png_file(1, 1)));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json_of(refused.body)["error"]["code"], "no_images");
  const TestResponse ids = server.post("/tokenize", image_chat(png_file(1, 1)));
  EXPECT_EQ(ids.status, 400);
  EXPECT_THAT(ids.body, HasSubstr("/v1/messages/count_tokens"));
}

TEST(ImageService, OthersAreAnsweredWhileAnImageIsRead) {
  HeldTranslator held;
  ImageServer server(held.translator());
  TestClient client(server.port());
  client.send(request_text("POST", "/v1/chat/completions", image_chat(png_file(3, 2, 'b'))));
  ASSERT_TRUE(soon([&] { return held.begun == 1; }));
  const std::string expected =
      chat_answer(server.post("/v1/chat/completions", plain_chat("(a)bbbbbb")));
  EXPECT_EQ(server.get("/health").status, 200);
  held.open = true;
  EXPECT_EQ(chat_answer(client.read_response()), expected);
}

TEST(ImageService, AClientThatGoesIsReadForNoLonger) {
  HeldTranslator held;
  ImageServer server(held.translator());
  {
    TestClient first(server.port()), second(server.port());
    first.send(request_text("POST", "/v1/chat/completions", image_chat(png_file(3, 2, 'b'))));
    ASSERT_TRUE(soon([&] { return held.begun == 1; }));
    second.send(request_text("POST", "/v1/chat/completions", image_chat(png_file(3, 2, 'b'))));
    ASSERT_TRUE(soon([&] { return server.http_stats().requests_total == 2; }));
  }
  EXPECT_TRUE(soon([&] { return held.ended >= 1; }));
  held.open = true;
  EXPECT_EQ(server.post("/v1/chat/completions", image_chat(png_file(1, 1, 'b'))).status, 200);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
  EXPECT_EQ(held.begun - held.ended, 1);  // the last one alone has been read
}

TEST(ImageService, TooManyThatWaitAreSentAway) {
  HeldTranslator held;
  ImageServer server(held.translator(), {.requests_max = 1});
  const std::string request =
      request_text("POST", "/v1/chat/completions", image_chat(png_file(3, 2, 'b')));
  TestClient first(server.port()), second(server.port()), third(server.port());
  first.send(request);
  ASSERT_TRUE(soon([&] { return held.begun == 1; }));
  second.send(request);
  third.send(request);
  // Whichever of the two comes later.
  ASSERT_TRUE(soon(
      [&] { return server.get("/metrics").body.find("status=\"429\"} 1") != std::string::npos; }));
  held.open = true;
  EXPECT_EQ(first.read_response().status, 200);
  const TestResponse one = second.read_response(), other = third.read_response();
  EXPECT_EQ(one.status + other.status, 200 + 429);
  const TestResponse& refused = one.status == 429 ? one : other;
  EXPECT_THAT(refused.body, HasSubstr("too many images wait to be read"));
  EXPECT_EQ(refused.field("Retry-After"), "5");
}

// While a large image is read a small one comes, and is read before that goes on.
TEST(ImageService, ASmallImageIsReadWhileALargeOneIs) {
  HeldTranslator held;
  ImageTranslator translator = held.translator();
  translator.aside_tokens_max = 6;
  translator.read = [read = translator.read, plain = pixel_translator().read](
                        std::span<const int32_t> ids, std::span<const images::Image> images,
                        const GoOn& go_on) {
    return images[0].width > 3 ? read(ids, images, go_on) : plain(ids, images, go_on);
  };
  ImageServer server(std::move(translator));
  TestClient large(server.port()), middle(server.port());
  large.send(request_text("POST", "/v1/chat/completions", image_chat(png_file(4, 2, 'b'))));
  ASSERT_TRUE(soon([&] { return held.begun == 1; }));
  const auto small = [&] {
    return server.post("/v1/chat/completions", image_chat(png_file(3, 2, 'c')));
  };
  EXPECT_EQ(small().status, 200);
  EXPECT_EQ(small().status, 200);
  middle.send(request_text("POST", "/v1/chat/completions", image_chat(png_file(7, 1, 'b'))));
  const auto waiting = [&] {
    return server.get("/metrics").body.find("requests_waiting{model_name=\"tiny\"} 1\n") !=
           std::string::npos;
  };
  EXPECT_TRUE(soon(waiting));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(small().status, 200);
  EXPECT_TRUE(waiting());
  EXPECT_EQ(held.begun, 1);  // one of seven tokens waits
  held.open = true;
  EXPECT_EQ(large.read_response().status, 200);
  EXPECT_EQ(middle.read_response().status, 200);
  EXPECT_EQ(held.begun, 2);
}

TEST(ImageService, CountsWhatItReads) {
  HeldTranslator held;
  ImageTranslator translator = held.translator();
  translator.counts = [] {
    serve::Histogram seconds(serve::latency_bounds());
    seconds.observe(0.5);
    return serve::ImageReadCounts{
        .known = 11, .rows = 22, .rows_bytes = 33, .encode_seconds = seconds.snapshot()};
  };
  ImageServer server(std::move(translator), {.requests_max = 1});
  const auto shows = [&](const std::string& line) {
    return server.get("/metrics").body.find(line) != std::string::npos;
  };
  const auto sample = [](const std::string& name, const std::string& label, int value) {
    return name + "{model_name=\"tiny\"" + label + "} " + std::to_string(value) + "\n";
  };
  const std::string request =
      request_text("POST", "/v1/chat/completions", image_chat(png_file(3, 2, 'b')));
  TestClient first(server.port());
  first.send(request);
  ASSERT_TRUE(soon([&] { return held.begun == 1; }));
  {
    TestClient second(server.port());
    second.send(request);
    EXPECT_TRUE(soon([&] { return shows(sample("jige:num_image_requests_waiting", "", 1)); }));
    EXPECT_EQ(server.post("/v1/chat/completions", image_chat(png_file(3, 2, 'b'))).status, 429);
  }
  // That the second has gone must be known before its turn comes.
  EXPECT_TRUE(soon([&] { return shows(sample("jige:num_image_requests_waiting", "", 0)); }));
  held.open = true;
  EXPECT_EQ(first.read_response().status, 200);
  const std::string file = png_file(3, 2);
  EXPECT_EQ(
      server.post("/v1/chat/completions", image_chat(file.substr(0, file.size() - 20))).status,
      400);
  for (const char* outcome : {"read", "refused", "failed", "cancelled"}) {
    const std::string label = std::string(",outcome=\"") + outcome + "\"";
    EXPECT_TRUE(soon([&] { return shows(sample("jige:image_requests_total", label, 1)); }))
        << outcome << server.get("/metrics").body;
  }
  EXPECT_TRUE(shows(sample("jige:num_image_requests_waiting", "", 0)));
  EXPECT_TRUE(shows(sample("jige:image_decode_seconds_count", "", 2)) ||
              shows(sample("jige:image_decode_seconds_count", "", 1)));
  EXPECT_TRUE(shows(sample("jige:image_queue_seconds_count", "", 1)));
  EXPECT_TRUE(shows(sample("jige:image_encode_seconds_count", "", 1)));
  EXPECT_TRUE(shows(sample("jige:images_known_total", "", 11)));
  EXPECT_TRUE(shows(sample("jige:image_rows_total", "", 22)));
  EXPECT_TRUE(shows(sample("jige:image_rows_bytes", "", 33)));
  TestServer blind;
  EXPECT_EQ(blind.get("/metrics").body.find("jige:image"), std::string::npos);
}

TEST(ImageService, WhatCannotBeReadIsToldByItsField) {
  ImageTranslator failing = pixel_translator();
  static Code code;
  failing.read = [](std::span<const int32_t>, std::span<const images::Image>,
                    const GoOn&) -> Result<serve::ImagePrompt> { return fail(code, "too bad"); };
  ImageServer server(failing);
  const std::pair<Code, int> cases[] = {{Code::kInvalidArgument, 400},
                                        {Code::kExhausted, 429},
                                        {Code::kUnavailable, 503},
                                        {Code::kInternal, 500}};
  for (const auto& [given, status] : cases) {
    code = given;
    const TestResponse response = server.post("/v1/chat/completions", image_chat(png_file(1, 1)));
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(json_of(response.body)["error"]["message"], "too bad");
  }
}

TEST(ImageService, AFileThatEndsTooEarlyIsToldByItsField) {
  ImageServer server;
  const std::string file = png_file(3, 2);
  const TestResponse response =
      server.post("/v1/chat/completions", image_chat(file.substr(0, file.size() - 20)));
  EXPECT_EQ(response.status, 400) << response.body;
  EXPECT_EQ(json_of(response.body)["error"]["param"], "messages[0].content[1].image_url.url");
}

TEST(ImageService, AStreamIsAliveWhileItsImageIsRead) {
  HeldTranslator held;
  ImageServer server(held.translator(), {}, {.event_pause_ms = 20});
  TestClient client(server.port());
  client.send(request_text("POST", "/v1/chat/completions",
                           image_chat(png_file(3, 2, 'b'), R"(,"stream":true)")));
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("text/event-stream"));
  EXPECT_FALSE(client.read_until(":\n\n").empty());
  EXPECT_EQ(held.begun, 1);
  held.open = true;
  EXPECT_FALSE(client.read_until("data: [DONE]").empty());
}

TEST(ImageService, AServerThatStopsReadsNoMore) {
  HeldTranslator held;
  ImageServer server(held.translator());
  const std::string body = image_chat(png_file(3, 2, 'b'));
  TestClient first(server.port()), second(server.port());
  first.send(request_text("POST", "/v1/chat/completions", body));
  ASSERT_TRUE(soon([&] { return held.begun == 1; }));
  second.send(request_text("POST", "/v1/chat/completions", body));
  ASSERT_TRUE(soon([&] { return server.http_stats().requests_total == 2; }));
  server.service().begin_drain();
  server.service().stop();
  EXPECT_EQ(first.read_response().status, 503);
  EXPECT_EQ(second.read_response().status, 503);
  EXPECT_EQ(held.begun, 1);
}

}  // namespace
}  // namespace jige::api
