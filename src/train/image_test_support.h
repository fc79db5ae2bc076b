// For tests of training with images: files of pictures, and chats about them.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/base64.h"
#include "images/image.h"
#include "images/test_files.h"
#include "train/recording_test_support.h"
#include "train/test_support.h"

namespace jige::train {

inline std::string image_model(const std::string& name) {
  return kFixtures + "image_towers/" + name;
}

// A PNG of these pixels. REQUIRES: fewer than 64 KiB of them.
inline std::string png_of(const images::Image& image) {
  std::string rows;
  for (int32_t y = 0; y < image.height; ++y) {
    rows += '\0' + std::string(reinterpret_cast<const char*>(image.rgb.data()) +
                                   static_cast<size_t>(y) * image.row_bytes(),
                               image.row_bytes());
  }
  return images::stored_png(static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.height),
                            std::string("\x08\x02\0\0\0", 5), rows);
}

// A picture that its number decides.
inline images::Image numbered_picture(int32_t number) {
  images::Image image = images::make_image(20 + number % 3 * 9, 16 + number % 4 * 5);
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    image.rgb[i] = static_cast<uint8_t>((i * static_cast<size_t>(7 + number) + i / 40) % 251);
  }
  return image;
}

// Chats, every third without an image, that name pictures which it writes: as files and as data:
// URLs.
inline std::string write_chats(const TestFolder& folder, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string png = png_of(numbered_picture(i));
    Json parts = Json::array();
    if (i % 3 == 0) {
      const std::string name = "picture" + std::to_string(i) + ".png";
      folder.write(name, png);
      parts.push_back({{"type", "image"}, {"image", name}});
    } else if (i % 3 == 1) {
      parts.push_back({{"type", "image_url"},
                       {"image_url", {{"url", "data:image/png;base64," + base64_text(png)}}}});
    }
    parts.push_back({{"type", "text"}, {"text", "What is it?"}});
    const Json messages = {
        {{"role", "user"}, {"content", parts}},
        {{"role", "assistant"}, {"content", std::string(1 + static_cast<size_t>(i) % 5, 'a')}}};
    lines += dump_json(Json{{"messages", messages}}) + "\n";
  }
  return folder.write("chats.jsonl", lines);
}

}  // namespace jige::train
