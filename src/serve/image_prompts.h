// ImagePrompts: puts images into prompts, as rows of the language model's width.
//
//   ImagePrompts prompts(tower->config(), encoder, {.vocab_size = …, .context_max = …});
//   JIGE_TRY(const ImagePrompt prompt, prompts.read(ids, images));
//   engine->submit({.prompt = prompt.ids, .given = prompt.given, …}, sink);
//
// A chat template writes one placeholder for an image. In its place come the tokens that the image
// takes (formats::image_tokens), those of rows with ids that its pixels alone decide (row_book.h):
// an image that comes again, as in the next turn of a chat, has the same ids, so the prefix cache
// knows it, and is not encoded again as long as its rows are kept.
// Threads: any; images are encoded one at a time, but that what the encoder asks whether to go on
// may read others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/go_on.h"
#include "base/result.h"
#include "formats/image_config.h"
#include "images/image.h"
#include "serve/given_rows.h"
#include "serve/histogram.h"
#include "serve/row_book.h"

namespace jige::serve {

struct ImagePrompt {
  std::vector<int32_t> ids;
  std::vector<GivenRowsRef> given;
  // To be mixed into what tells cached beginnings apart, by xor; 0 until ids have run out once.
  uint64_t cache_salt = 0;
};

// What has been read so far.
struct ImageReadCounts {
  int64_t known = 0;                   // images whose rows were kept from before
  int64_t rows = 0;                    // of the others
  int64_t rows_bytes = 0;              // of images whose rows are kept or in use now
  Histogram::Snapshot encode_seconds;  // of an image of the others
};

class ImagePrompts {
 public:
  // The rows of an image, [levels, row_count of its layout, width]; ImageTower::encode. Fails with
  // what `go_on` gives.
  using Encoder = std::function<Result<std::vector<float>>(const images::Image&, const GoOn&)>;
  struct Options {
    int32_t vocab_size = 0;
    int64_t context_max = 0;
    int64_t rows_bytes_max = int64_t{512} << 20;  // of all images whose rows are alive
  };

  // REQUIRES: the config's ids of tokens are known.
  ImagePrompts(formats::ImageConfig config, Encoder encoder, const Options& options);

  const formats::ImageConfig& config() const { return config_; }
  // The tokens of a prompt that an image of this size takes. REQUIRES: sides of a pixel or more.
  int64_t token_count(int32_t width, int32_t height) const;
  // Those that a prompt with a placeholder for each image has with the images.
  int64_t token_count(std::span<const int32_t> ids, std::span<const images::Image> images) const;

  // The prompt with its images in place of the placeholders, in order. Fails with kInvalidArgument
  // where these are not as many as the images, or the context is too short, before anything is
  // encoded; kExhausted where images of others leave no memory; and as the encoder does.
  Result<ImagePrompt> read(std::span<const int32_t> ids, std::span<const images::Image> images,
                           const GoOn& go_on = {});
  ImageReadCounts counts() const;

 private:
  struct Read {
    GivenRowsRef rows;
    std::vector<int32_t> tokens;  // with formats::kImageRow for each row
  };
  Status check(std::span<const int32_t> ids, std::span<const images::Image> images) const;
  Result<std::vector<Read>> read_all(std::span<const images::Image> images, const GoOn& go_on);
  Result<Read> read_one(const images::Image& image, const GoOn& go_on);
  ImagePrompt put_together(std::span<const int32_t> ids, std::span<const Read> images) const;

  const formats::ImageConfig config_;
  const Encoder encoder_;
  const Options options_;
  std::recursive_mutex mutex_;  // of encoder_
  RowBook book_;
  std::atomic<int64_t> known_{0};
  std::atomic<int64_t> rows_{0};
  Histogram encode_seconds_{latency_bounds()};
};

}  // namespace jige::serve
