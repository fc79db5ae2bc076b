// ImageReader: reads the images of requests for a model, one request after another, on a thread of
// its own: decoding them and running the tower takes seconds, which neither the server's thread nor
// the engine's has.
//
// What waits is bounded in requests and in bytes of files; decoded images are there for one request
// at a time, of which RequestLimits::image_pixels_max bounds them.
// Threads: any, but for stop(): once, from the thread that owns the reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "api/work_queue.h"
#include "base/go_on.h"
#include "base/result.h"
#include "images/decode.h"
#include "images/image.h"
#include "serve/image_prompts.h"
#include "text/image_text.h"

namespace jige::api {

// An image as a request brings it.
struct ImageFile {
  std::string bytes;
  std::string where;       // the field that has it
  images::ImageSize size;  // as its head says
};

// What images become; serve::ImagePrompts, but in tests. Its functions are called from any thread.
struct ImageTranslator {
  int32_t placeholder_id = 0;  // where a prompt has an image
  // What stands in a prompt in place of what a chat template writes, where there is a difference.
  text::ImageText written = {};
  // Tokens of a prompt that an image of this size takes.
  std::function<int64_t(images::ImageSize)> token_count;
  // As ImagePrompts::read.
  std::function<Result<serve::ImagePrompt>(
      std::span<const int32_t> ids, std::span<const images::Image> images, const GoOn& go_on)>
      read;
};

class ImageReader {
 public:
  struct Limits {
    size_t requests_max = 64;
    size_t bytes_max = size_t{128} << 20;  // of files that wait or are read
  };
  ImageReader(ImageTranslator translator, Limits limits);
  explicit ImageReader(ImageTranslator translator) : ImageReader(std::move(translator), Limits()) {}

  int32_t placeholder_id() const { return translator_.placeholder_id; }
  const text::ImageText& written() const { return translator_.written; }
  int64_t token_count(images::ImageSize size) const { return translator_.token_count(size); }

  struct Job {
    std::vector<int32_t> prompt;  // with a placeholder for each file
    std::vector<ImageFile> files;
    std::shared_ptr<std::atomic<bool>> cancelled;  // nobody waits for it any more
    // On the reader's thread; not where it was cancelled before it began.
    std::function<void(ApiResult<serve::ImagePrompt> prompt)> done;
  };
  // 429 where too many wait, 503 where it has stopped; `done` is not called then.
  std::optional<ApiError> read(Job job);
  // Reads no more: what waits, and what is being read, is done with 503.
  void stop();

 private:
  ApiResult<serve::ImagePrompt> read_now(Job& job);

  const ImageTranslator translator_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::shared_ptr<std::atomic<bool>> reading_;  // cancels what is being read; guarded by mutex_
  WorkQueue queue_;
};

}  // namespace jige::api
