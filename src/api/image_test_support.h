// What the tests of images in requests share: files of one colour, a model whose template shows
// where images stand, and a translator that takes them for rows of one token.
//
// Threads: one test at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/api_test_support.h"
#include "api/image_reader.h"
#include "base/base64.h"
#include "images/test_files.h"

namespace jige::api::testing {

// A grey PNG. REQUIRES: fewer than 64 KiB of pixels.
inline std::string png_file(uint32_t width, uint32_t height, char grey = 'x') {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) rows += '\0' + std::string(width, grey);
  return images::stored_png(width, height, std::string("\x08\0\0\0\0", 5), rows);
}

inline std::string data_url(const std::string& file, const std::string& type = "image/png") {
  return "data:" + type + ";base64," + base64_text(file);
}

// A part of a chat completion.
inline std::string image_part(const std::string& url) {
  return R"({"type":"image_url","image_url":{"url":")" + url + "\"}}";
}
inline std::string text_part(const std::string& text) {
  return R"({"type":"text","text":")" + text + "\"}";
}

inline constexpr int32_t kPlaceholder = 1;

// A token for each pixel, the same for all of an image: the character that its grey is the code of.
inline int32_t pixel_token(const images::Image& image) {
  return std::clamp<int32_t>(image.rgb.front(), '!', '|') - '!' + 4;
}
inline ImageTranslator pixel_translator() {
  return {.placeholder_id = kPlaceholder,
          .token_count = [](images::ImageSize size) { return int64_t{size.width} * size.height; },
          .read = [](std::span<const int32_t> ids, std::span<const images::Image> images,
                     const GoOn&) -> Result<serve::ImagePrompt> {
            serve::ImagePrompt prompt;
            for (const int32_t id : ids) {
              if (id != kPlaceholder) {
                prompt.ids.push_back(id);
                continue;
              }
              const images::Image& image = images.front();
              images = images.subspan(1);
              prompt.ids.insert(prompt.ids.end(), image.rgb.size() / 3, pixel_token(image));
            }
            return prompt;
          }};
}

inline text::Tokenizer image_tokenizer() { return character_tokenizer("|", "[IMG]"); }

// Shows every role, texts and images in their order, and results of tools.
inline ServedModel image_model(ImageTranslator translator = pixel_translator(),
                               ImageQueue::Limits limits = {}) {
  ServedModel model = test_model();
  model.tokenizer = image_tokenizer();
  model.tool_format = ToolFormat::kHermes;
  model.chat_template = value_of(text::ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for p in m.content or [] %}{% if p.type == 'image' %}[IMG]"
      "{% elif p.type == 'text' %}({{ p.text }}){% endif %}{% endfor %}{% endif %}{% endfor %}"
      "{{ more }}",
      "images"));
  model.images = std::make_shared<ImageReader>(std::move(translator), limits);
  return model;
}

// The prompt with "#" where an image is wanted.
inline std::string shown_places(const std::vector<int32_t>& prompt) {
  const text::Tokenizer tokenizer = image_tokenizer();
  std::string shown;
  for (const int32_t id : prompt) {
    shown += id == kPlaceholder ? "#" : value_of(tokenizer.decode({{id}}, {}));
  }
  return shown;
}

inline std::string shown_places(const ApiResult<PreparedRequest>& read) {
  if (!read) return read.error().param + ": " + read.error().message;
  return shown_places(read->engine[0].prompt);
}

}  // namespace jige::api::testing
