#include "api/request_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "api/image_test_support.h"
#include "api/messages_request.h"
#include "api/protocol_test_support.h"
#include "api/request_test_support.h"
#include "api/responses_request.h"

namespace jige::api {
namespace {

using testing::data_url;
using testing::expect_refused;
using ::testing::HasSubstr;
using testing::image_model;
using testing::image_part;
using testing::json_of;
using testing::kSeed;
using testing::png_file;
using testing::Refusal;
using testing::shown_places;
using testing::text_part;

const std::string kPng = png_file(3, 2);
const std::string kUrl = data_url(kPng);

ApiResult<PreparedRequest> chat_with_images(const std::string& members,
                                            const RequestLimits& limits = {}) {
  return prepare_chat(json_of("{" + members + "}"), image_model(), limits, kSeed);
}
ApiResult<PreparedRequest> response_with_images(const std::string& members) {
  return prepare_responses(json_of("{" + members + "}"), image_model(), {}, kSeed);
}
ApiResult<PreparedRequest> message_with_images(const std::string& members) {
  return prepare_messages(json_of(R"({"max_tokens":9,)" + members + "}"), image_model(), {}, kSeed);
}

std::string message(const std::string& role, const std::string& parts) {
  return R"({"role":")" + role + R"(","content":[)" + parts + "]}";
}
std::string messages(const std::string& list) { return R"("messages":[)" + list + "]"; }
std::string user(const std::string& parts) { return messages(message("user", parts)); }

TEST(DataUrl, BringsTheBytesOfAnImageInBase64) {
  EXPECT_EQ(*data_url_bytes("data:image/png;base64,Zm9v", "u"), "foo");
  EXPECT_EQ(*data_url_bytes("DATA:Image/JPEG;q=1;BASE64,Zg==", "u"), "f");
  EXPECT_EQ(*data_url_bytes("data:image/png;base64,", "u"), "");
  const std::pair<std::string, std::string> refused[] = {
      {"http://a.example/b.png", "u: nothing is downloaded"},
      {"HTTPS://a.example/b.png", "u: nothing is downloaded"},
      {"file:///etc/passwd", "u must be a data: URL"},
      {"", "u must be a data: URL"},
      {"data:", "u must name the type of an image"},
      {"data:,", "u must name the type of an image"},
      {"data:;base64,Zm9v", "u must name the type of an image"},
      {"data:text/plain;base64,Zm9v", "u must name the type of an image"},
      {"data:image/png,Zm9v", "found \"data:image/png\""},
      {"data:image/png;base64", "be in base64"},
      {"base64,Zm9v", "u must be a data: URL"},
      {"data:image/png;base64,Zm9", "u is not base64"},
      {"data:image/png;base64,Zm9v\n", "u is not base64"},
      {"data:image/png;base64,Zm9v Zm9v", "u is not base64"},
      {"data:image/png;base64,Zm-_", "u is not base64"},
      {"data:image/png;base64,%5Zm", "u is not base64"},
  };
  for (const auto& [url, words] : refused) {
    const auto bytes = data_url_bytes(url, "u");
    ASSERT_FALSE(bytes) << url;
    EXPECT_EQ(bytes.error().status, 400);
    EXPECT_EQ(bytes.error().param, "u");
    EXPECT_THAT(bytes.error().message, HasSubstr(words)) << url;
  }
}

TEST(RequestImages, StandInTheOrderOfTheParts) {
  const std::string image = image_part(kUrl);
  const auto read = chat_with_images(user(text_part("a") + "," + text_part("b") + "," + image +
                                          "," + image + "," + text_part("c")));
  EXPECT_EQ(shown_places(read), "<user>(a)(b)##(c)");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->images.size(), 2u);
  EXPECT_EQ(read->images[1].bytes, kPng);
  EXPECT_EQ(read->images[1].where, "messages[0].content[3].image_url.url");
  EXPECT_EQ(shown_places(chat_with_images(user(image))), "<user>#");
  EXPECT_EQ(shown_places(chat_with_images(user(text_part("") + "," + image))), "<user>()#");
  EXPECT_EQ(shown_places(chat_with_images(messages(
                message("system", text_part("s")) + "," + message("user", image) +
                R"(,{"role":"assistant","content":"a"},)" + message("user", text_part("u"))))),
            "<system>s<user>#<assistant>a<user>u");
  EXPECT_EQ(shown_places(chat_with_images(
                messages(message("user", text_part("u")) +
                         R"(,{"role":"tool","tool_call_id":"c","content":[)" + image + "]}"))),
            "<user>u<tool>#");
}

TEST(RequestImages, CountInThePromptWhatTheyTake) {
  const auto one = chat_with_images(user(text_part("a") + "," + image_part(kUrl)));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->engine[0].prompt.size(), 10u);  // "<user>(a)" and a placeholder
  EXPECT_EQ(one->prompt_tokens, 9 + 6);
  EXPECT_EQ(one->engine[0].tokens_max, 128 - 15);
  const auto none = chat_with_images(user(text_part("a")));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->prompt_tokens, 7);
  // The context holds 128 tokens, one of them for the answer.
  const auto of_width = [](uint32_t width) {
    return chat_with_images(user(image_part(data_url(png_file(width, 1)))));
  };
  EXPECT_EQ(of_width(121)->prompt_tokens, 127);
  const auto large = of_width(122);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, "context_length_exceeded");
  EXPECT_THAT(large.error().message, HasSubstr("the prompt has 128 tokens"));
}

TEST(RequestImages, ATextThatLooksLikeAPlaceHasNone) {
  EXPECT_EQ(shown_places(chat_with_images(user(text_part("[IMG]") + "," + image_part(kUrl)))),
            "<user>([IMG])#");
  EXPECT_EQ(shown_places(chat_with_images(user(text_part("[IMG]")))), "<user>[IMG]");
  EXPECT_EQ(shown_places(chat_with_images(
                user(text_part("[IM") + "," + image_part(kUrl) + "," + text_part("G]")))),
            "<user>([IM)#(G])");
}

TEST(RequestImages, AreRefusedWhereTheTemplateHasAnotherNumberOfPlaces) {
  const std::string one = user(image_part(kUrl));
  const std::vector<Refusal> refusals = {
      {one + R"(,"chat_template_kwargs":{"more":"[IMG]"})", "messages",
       "the chat template of \"tiny\" writes 2 places for images where 1 were sent"},
      {user(text_part("a")) + R"(,"chat_template_kwargs":{"more":"[IMG]"})", "messages",
       "writes 1 places for images where 0 were sent"},
  };
  expect_refused(refusals, [](const std::string& members) { return chat_with_images(members); });
  ServedModel model = image_model();
  model.chat_template = testing::test_template();  // shows a list as Python does
  const auto blind = prepare_chat(json_of("{" + one + "}"), model, {}, kSeed);
  ASSERT_FALSE(blind);
  EXPECT_THAT(blind.error().message, HasSubstr("writes 0 places for images where 1 were sent"));
}

TEST(RequestImages, RefuseWhatIsWrongAndNameTheField) {
  const auto url = [](const std::string& text) { return user(image_part(text)); };
  const std::string place = "messages[0].content[0].image_url.url";
  const std::string fine = image_part(kUrl);
  std::string many = fine;
  for (int i = 0; i < 32; ++i) many += "," + fine;
  const std::vector<Refusal> refusals = {
      {user(R"({"type":"image_url"})"), place, "must be a data: URL"},
      {user(R"({"type":"image_url","image_url":"data:"})"), place, "found nothing"},
      {user(R"({"type":"image_url","image_url":{"url":5}})"), place, "found 5"},
      {user(R"({"type":"image","image":"x"})"), "messages[0].content[0].type",
       "parts of type \"image\" are not supported"},
      {url("https://a.example/b.png"), place, "nothing is downloaded"},
      {url("data:image/png;base64,!!!!"), place, place + " is not base64"},
      {url("data:image/png;base64,"), place, place},
      {url(data_url("no image at all, but bytes")), place, place + ": is no image"},
      {user(fine + "," + image_part(data_url(kPng.substr(0, 20)))),
       "messages[0].content[1].image_url.url", "messages[0].content[1].image_url.url"},
      {url(data_url(images::png_that_says(20000, 10000))), place, "pixels"},
      {user(many), "messages[0].content[32].image_url.url", "a request has at most 32 images"},
      {messages(message("system", fine)), "messages[0].content[0].type",
       "images in messages of the role \"system\" are not supported"},
      {messages(message("developer", fine)), "messages[0].content[0].type", "role \"system\""},
      {messages(message("user", fine) + "," + message("assistant", fine)),
       "messages[1].content[0].type", "role \"assistant\""},
      {user(fine) + R"(,"truncate_prompt_tokens":5)", "truncate_prompt_tokens",
       "cutting prompts with images is not supported"},
      {user(fine) + R"(,"prompt_logprobs":1)", "prompt_logprobs", "not supported"},
      {user(fine) + R"(,"add_generation_prompt":false,"continue_final_message":true)", "messages",
       "no text that could be continued"},
  };
  expect_refused(refusals, [](const std::string& members) { return chat_with_images(members); });
  // All images of a request together.
  const RequestLimits few{.image_pixels_max = 11};
  const auto two = chat_with_images(user(fine + "," + fine), few);
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().param, "messages[0].content[1].image_url.url");
  EXPECT_THAT(two.error().message, HasSubstr("more than 11 pixels"));
  EXPECT_TRUE(chat_with_images(user(fine), few));
}

TEST(RequestImages, WhatTheyAreIsSaidByTheirBytes) {
  const auto read = chat_with_images(user(image_part(data_url(kPng, "image/jpeg"))));
  EXPECT_EQ(shown_places(read), "<user>#");
}

TEST(RequestImages, ComeInItemsOfResponses) {
  const std::string image = R"({"type":"input_image","image_url":")" + kUrl + "\"}";
  const auto input = [](const std::string& items) { return R"("input":[)" + items + "]"; };
  const auto said = [](const std::string& parts) {
    return R"({"role":"user","content":[)" + parts + "]}";
  };
  const std::string text = R"({"type":"input_text","text":"a"})";
  EXPECT_EQ(shown_places(response_with_images(input(said(text + "," + image)))), "<user>(a)#");
  EXPECT_EQ(shown_places(response_with_images(
                input(said(image + "," + text) +
                      R"(,{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},)"
                      R"({"type":"function_call_output","call_id":"c","output":[)" +
                      image + "]}"))),
            "<user>#(a)<assistant><tool>#");
  const std::string place = "input[0].content[0]";
  const std::vector<Refusal> refusals = {
      {input(said(R"({"type":"input_image","file_id":"f"})")), place + ".file_id",
       place + ".file_id: no files are kept here"},
      {input(said(R"({"type":"input_image"})")), place + ".image_url",
       place + ".image_url must be a data: URL"},
      {input(said(R"({"type":"input_image","image_url":"http://a"})")), place + ".image_url",
       place + ".image_url: nothing is downloaded"},
      {input(said(text + R"(,{"type":"input_image","image_url":"data:image/png;base64,@"})")),
       "input[0].content[1].image_url", "input[0].content[1].image_url is not base64"},
      {input(R"({"role":"developer","content":[)" + image + "]}"), place + ".type", "\"system\""},
      {input(R"({"role":"assistant","content":[)" + image + "]}"), place + ".type",
       "\"input_image\" are not supported"},
      {input(said(R"({"type":"input_file","file_id":"f"})")), place + ".type", "\"input_file\""},
  };
  expect_refused(refusals, response_with_images);
}

TEST(RequestImages, ComeInBlocksOfMessages) {
  const std::string data = testing::json_of("\"" + kUrl.substr(kUrl.find(',') + 1) + "\"");
  const auto source = [](const std::string& members) {
    return R"({"type":"image","source":{)" + members + "}}";
  };
  const std::string image =
      source(R"("type":"base64","media_type":"image/png","data":")" + data + "\"");
  EXPECT_EQ(shown_places(message_with_images(user(image + "," + text_part("a")))), "<user>#(a)");
  // Turns that follow one another are one; so are the texts beside one another.
  EXPECT_EQ(shown_places(message_with_images(
                messages(message("user", text_part("a") + "," + image) +
                         R"(,{"role":"user","content":"b"},)" + message("user", image)))),
            "<user>(a)#(b)#");
  const std::string result = R"({"type":"tool_result","tool_use_id":"c","content":[)" +
                             text_part("r") + "," + image + "]}";
  EXPECT_EQ(shown_places(message_with_images(user(result + "," + image))), "<tool>(r)#<user>#");
  const std::string place = "messages[0].content[1].source";
  const auto behind = [&](const std::string& block) { return user(text_part("a") + "," + block); };
  const std::vector<Refusal> refusals = {
      {behind(R"({"type":"image"})"), place + ".type", "must be base64, found nothing"},
      {behind(source(R"("type":"file","file_id":"f")")), place + ".type", "found \"file\""},
      {behind(source(R"("type":"url","url":"https://a.example/b.png")")), place + ".url",
       place + ".url: nothing is downloaded"},
      {behind(source(R"("type":"url")")), place + ".url", "found nothing"},
      {behind(source(R"("type":"base64","data":"Zm9v")")), place + ".media_type", "found nothing"},
      {behind(source(R"("type":"base64","media_type":"image/png")")), place + ".data", "nothing"},
      {behind(source(R"("type":"base64","media_type":"image/png","data":"#")")), place + ".data",
       place + ".data is not base64"},
      {behind(source(R"("type":"base64","media_type":"text/html","data":"Zm9v")")), place + ".data",
       "must name the type of an image"},
      {behind(source(R"("type":"base64","media_type":"image/png","data":"Zm9v")")), place + ".data",
       place + ".data: is no image"},
      {R"("system":[)" + image + "]," + user(text_part("a")), "system[0].type", "\"image\""},
      {messages(message("assistant", image)), "messages[0].content[0].type", "\"image\""},
  };
  expect_refused(refusals, message_with_images);
  const auto counted = count_message_tokens(json_of("{" + user(image) + "}"), image_model(), {});
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_EQ((*counted)["input_tokens"], 6 + 6);
}

TEST(RequestImages, ManyPartsAreReadInTimeThatGrowsWithThem) {
  std::string texts = text_part("a");
  for (int i = 1; i < 40'000; ++i) texts += "," + text_part("a");
  std::string urls = image_part("x");
  for (int i = 1; i < 10'000; ++i) urls += "," + image_part("x");
  const auto begin = std::chrono::steady_clock::now();
  const auto long_text = chat_with_images(user(image_part(kUrl) + "," + texts));
  ASSERT_FALSE(long_text);
  EXPECT_EQ(long_text.error().code, "context_length_exceeded");
  EXPECT_FALSE(chat_with_images(user(urls)));
  const std::string blocks = R"({"type":"image","source":{"type":"url","url":"x"}})";
  std::string sources = blocks;
  for (int i = 1; i < 10'000; ++i) sources += "," + blocks;
  const auto refused = message_with_images(user(sources));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages[0].content[0].source.url");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace jige::api
