// A folder of a tiny model that reads images, with a tokenizer of letters and a chat template.
//
// Threads: free functions.
#pragma once

#include <string>

namespace jige::integration {

// Writes it into a folder that is there. A message's images and texts stand in its prompt as they
// come, an image of 8 x 8 pixels as 4 tokens and one behind each row of 2: "[IMG_BREAK]", or
// "[IMG_END]" at its end. Letters y and z and "{" are not in its vocabulary.
void write_image_folder(const std::string& folder);

// The same of a Qwen2.5-VL, where an image has a token before its rows and one behind them.
void write_qwen_image_folder(const std::string& folder);

// A model of tests/fixtures/image_towers that can be asked: its own folder, or where that has no
// tokenizer, `folder`, written as above.
std::string recorded_image_folder(const std::string& name, const std::string& folder);

// A picture of tests/fixtures/images.
std::string picture_file(const std::string& name);

}  // namespace jige::integration
