#include "integration/recorded_pictures.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/base64.h"
#include "base/file.h"
#include "integration/image_folder.h"

namespace jige::integration {

Json recorded_conversation(const std::string& folder, size_t index) {
  const Result<std::string> text = read_file(folder + "/conversation.json");
  EXPECT_TRUE(text);
  return text ? Json::parse(*text)[index] : Json();
}

Json request_of(const Json& recorded) {
  Json messages = recorded["messages"];
  for (Json& message : messages) {
    for (Json& part : message["content"]) {
      if (part["type"] != "image") continue;
      const Result<std::string> bytes = read_file(picture_file(part["file"]));
      EXPECT_TRUE(bytes);
      const std::string url = "data:image/png;base64," + base64_text(bytes ? *bytes : "");
      part = {{"type", "image_url"}, {"image_url", {{"url", url}}}};
    }
  }
  return {{"messages", std::move(messages)},
          {"temperature", 0},
          {"max_tokens", 8},
          {"ignore_eos", true}};
}

void expect_answer(const Serving& server, const Json& recorded) {
  const api::testing::TestResponse response =
      server.post("/v1/chat/completions", dump_json(request_of(recorded)));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json answer = Json::parse(response.body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], recorded["answer"]);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], recorded["ids"].size());
}

}  // namespace jige::integration
