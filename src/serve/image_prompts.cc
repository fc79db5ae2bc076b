#include "serve/image_prompts.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"

namespace jige::serve {
namespace {

struct DigestDeleter {
  void operator()(EVP_MD_CTX* digest) const { EVP_MD_CTX_free(digest); }
};

// What an image is: the digest of its size and pixels.
Result<RowBook::Content> content_of(const images::Image& image, const GoOn& go_on) {
  constexpr size_t kPieceBytes = size_t{4} << 20;  // milliseconds
  RowBook::Content content{};
  const int32_t size[2] = {image.width, image.height};
  const std::unique_ptr<EVP_MD_CTX, DigestDeleter> digest(EVP_MD_CTX_new());
  bool made = digest && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1 &&
              EVP_DigestUpdate(digest.get(), size, sizeof size) == 1;
  for (size_t at = 0; made && at < image.rgb.size(); at += kPieceBytes) {
    JIGE_DO(may_go_on(go_on));
    made = EVP_DigestUpdate(digest.get(), image.rgb.data() + at,
                            std::min(kPieceBytes, image.rgb.size() - at)) == 1;
  }
  made = made && EVP_DigestFinal_ex(digest.get(), content.data(), nullptr) == 1;
  JIGE_CHECK(made, "no digest of {} bytes", image.rgb.size());
  return content;
}

}  // namespace

ImagePrompts::ImagePrompts(formats::ImageConfig config, Encoder encoder, const Options& options)
    : config_(std::move(config)),
      encoder_(std::move(encoder)),
      options_(options),
      book_({.first_id = options.vocab_size,
             .bytes_max = options.rows_bytes_max,
             .mutual = config_.mutual_rows}) {}

int64_t ImagePrompts::token_count(int32_t width, int32_t height) const {
  return std::ssize(formats::image_tokens(config_, formats::image_layout(config_, width, height)));
}

int64_t ImagePrompts::token_count(std::span<const int32_t> ids,
                                  std::span<const images::Image> images) const {
  int64_t count = std::ssize(ids) - std::ssize(images);
  for (const images::Image& image : images) count += token_count(image.width, image.height);
  return count;
}

Status ImagePrompts::check(std::span<const int32_t> ids,
                           std::span<const images::Image> images) const {
  const int64_t places = std::ranges::count(ids, config_.placeholder_id);
  if (places != std::ssize(images)) {
    return fail(Code::kInvalidArgument,
                "the prompt has a place (\"{}\") for {} images and {} came; each image needs one, "
                "which a chat template writes, and a text that names it has one too many",
                config_.written.token.empty() ? config_.image_token : config_.written.token, places,
                images.size());
  }
  const int64_t count = token_count(ids, images);
  if (count < options_.context_max) return {};
  return fail(Code::kInvalidArgument,
              "the prompt has {} tokens with its images ({} without) and the context holds {}; "
              "send fewer or smaller images, or load the model with a longer --context",
              count, std::ssize(ids) - places, options_.context_max);
}

Result<ImagePrompt> ImagePrompts::read(std::span<const int32_t> ids,
                                       std::span<const images::Image> images, const GoOn& go_on) {
  JIGE_DO(check(ids, images));
  if (images.empty()) return ImagePrompt{.ids = {ids.begin(), ids.end()}, .given = {}};
  const std::lock_guard lock(mutex_);
  const uint64_t epoch = book_.epoch();
  JIGE_TRY(std::vector<Read> read, read_all(images, go_on));
  if (book_.epoch() != epoch) {  // the first ones have ids of before
    JIGE_TRY(read, read_all(images, go_on));
  }
  return put_together(ids, read);
}

Result<std::vector<ImagePrompts::Read>> ImagePrompts::read_all(
    std::span<const images::Image> images, const GoOn& go_on) {
  std::vector<Read> all;
  for (const images::Image& image : images) {
    JIGE_TRY(Read one, read_one(image, go_on));
    all.push_back(std::move(one));
  }
  return all;
}

Result<ImagePrompts::Read> ImagePrompts::read_one(const images::Image& image, const GoOn& go_on) {
  const auto layout = formats::image_layout(config_, image.width, image.height);
  Read read{.rows = {}, .tokens = formats::image_tokens(config_, layout)};
  JIGE_TRY(const RowBook::Content content, content_of(image, go_on));
  read.rows = book_.find(content);
  if (read.rows) {
    ++known_;
    return read;
  }
  const StopWatch watch;
  JIGE_TRY(std::vector<float> values, encoder_(image, go_on));
  encode_seconds_.observe(watch.seconds());
  rows_ += layout.row_count();
  JIGE_CHECK(std::ssize(values) == config_.levels() * layout.row_count() * config_.text_width,
             "{} numbers of an image of {} rows", values.size(), layout.row_count());
  JIGE_TRY(read.rows,
           book_.add(content, {.token = config_.token_of_row(),
                               .count = layout.row_count(),
                               .values = std::move(values),
                               .columns = config_.pair_places.empty() ? 0 : layout.token_columns,
                               .levels = static_cast<int32_t>(config_.levels())}));
  return read;
}

ImageReadCounts ImagePrompts::counts() const {
  return {.known = known_,
          .rows = rows_,
          .rows_bytes = book_.bytes(),
          .encode_seconds = encode_seconds_.snapshot()};
}

ImagePrompt ImagePrompts::put_together(std::span<const int32_t> ids,
                                       std::span<const Read> images) const {
  ImagePrompt prompt;
  const uint64_t epoch = book_.epoch();
  if (epoch > 0) prompt.cache_salt = derive_key(epoch, "ids of images");
  auto image = images.begin();
  for (const int32_t id : ids) {
    if (id != config_.placeholder_id) {
      prompt.ids.push_back(id);
      continue;
    }
    int32_t row = image->rows->first_id;
    for (const int32_t token : image->tokens) {
      prompt.ids.push_back(token == formats::kImageRow ? row++ : token);
    }
    prompt.given.push_back(image->rows);
    ++image;
  }
  return prompt;
}

}  // namespace jige::serve
