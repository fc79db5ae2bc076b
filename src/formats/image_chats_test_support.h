// Chats with images of a recorded folder (tests/tools/record_image_towers.py and its like), as its
// tokenizer and template write them.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/image_config.h"
#include "formats/test_support.h"
#include "text/chat_encode.h"
#include "text/tokenizer.h"

namespace jige::formats {

struct ImageChats {
  text::Tokenizer tokenizer;
  text::ChatTemplate chat;
  ImageConfig config;

  static ImageChats open(const std::string& name) {
    const std::string folder = image_tower_fixture(name);
    auto tokenizer = text::Tokenizer::load(folder);
    EXPECT_TRUE(tokenizer);
    auto chat = text::ChatTemplate::parse(tokenizer->chat_template(), "template");
    EXPECT_TRUE(chat);
    auto config = load_image_config(folder);
    EXPECT_TRUE(config && *config);
    EXPECT_TRUE(find_image_tokens(**config, *tokenizer));
    return {*tokenizer, *chat, **config};
  }
  // The ids of a chat with images of these sizes, each row as the placeholder.
  std::vector<int32_t> ids(const Json& messages,
                           const std::vector<std::pair<int32_t, int32_t>>& sizes) const {
    const auto ids = text::encode_chat(tokenizer, chat, messages,
                                       {.add_generation_prompt = true, .image = config.written});
    EXPECT_TRUE(ids);
    std::vector<int32_t> whole;
    size_t image = 0;
    for (const int32_t id : *ids) {
      if (id != config.placeholder_id) {
        whole.push_back(id);
        continue;
      }
      const auto [width, height] = sizes.at(image++);
      for (const int32_t token : image_tokens(config, image_layout(config, width, height))) {
        whole.push_back(token == kImageRow ? config.placeholder_id : token);
      }
    }
    EXPECT_EQ(image, sizes.size());
    return whole;
  }
};

// Two conversations that were recorded with pictures of 13 x 9 pixels have the ids of the
// processor.
inline void expect_recorded_ids(const ImageChats& folder, const std::string& name) {
  const auto text = read_file(image_tower_fixture(name) + "/conversation.json");
  ASSERT_TRUE(text);
  const Json records = Json::parse(*text);
  ASSERT_EQ(records.size(), 2u);
  for (const Json& record : records) {
    std::vector<std::pair<int32_t, int32_t>> sizes;
    for (const Json& message : record["messages"]) {
      for (const Json& part : message["content"]) {
        if (part["type"] == "image") sizes.emplace_back(13, 9);
      }
    }
    EXPECT_EQ(folder.ids(record["messages"], sizes), record["ids"].get<std::vector<int32_t>>());
  }
}

}  // namespace jige::formats
