// ImageText: the text that stands in a prompt for an image, of models whose chat template writes a
// token where an image belongs and whose processor puts a text in its place ("\n\n", tokens that
// open and close an image, and between them one for all of its rows). That happens before the text
// becomes tokens, since what stands around it may join with it into other tokens.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace jige::text {

struct ImageText {
  std::string token;  // empty: nothing is put in place of anything
  std::string text;

  bool operator==(const ImageText&) const = default;
};

// Puts the image's text in place of its token, wherever that stands and no guard covers it, as a
// token that a person spelled out does (chat_encode.h). `guards` are those of EncodeOptions, and
// move with the text behind them; so do other places, where there are any, ascending.
void put_image_text(const ImageText& image, std::string& text, std::vector<size_t>& guards,
                    std::vector<size_t>* places = nullptr);

}  // namespace jige::text
