// ImageReader: reads the images of requests for a model: decoding them and running the tower takes
// seconds, which neither the server's thread nor the engine's has.
//
// Two threads decode, one runs the tower; whose turn it is says ImageQueue. Where the translator
// allows it, small images are read while a large one is, whenever that asks whether to go on: for
// half of the time at most, so that it ends, too.
// What waits is bounded in requests, in bytes of files and in decoded pixels.
// Threads: any, but for stop(): once, from the thread that owns the reader.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "api/api_error.h"
#include "api/image_queue.h"
#include "base/clock.h"
#include "base/go_on.h"
#include "base/result.h"
#include "images/decode.h"
#include "images/image.h"
#include "serve/histogram.h"
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
  std::function<serve::ImageReadCounts()> counts;  // may be empty
  // While one read asks `go_on`, that may read a request whose images take so many tokens.
  int64_t aside_tokens_max = 0;
};

// What a reader has done so far, in requests but where it says more.
struct ImageReaderCounts {
  int64_t read = 0;
  int64_t refused = 0;                        // as too many waited
  int64_t failed = 0;                         // as files were damaged, or memory was short
  int64_t cancelled = 0;                      // by clients that went, or as it stopped
  size_t waiting = 0;                         // now
  serve::Histogram::Snapshot queue_seconds;   // till the model began with it
  serve::Histogram::Snapshot decode_seconds;  // of an image
  serve::ImageReadCounts model;
};

class ImageReader {
 public:
  ImageReader(ImageTranslator translator, ImageQueue::Limits limits);
  explicit ImageReader(ImageTranslator translator)
      : ImageReader(std::move(translator), ImageQueue::Limits()) {}
  ~ImageReader() { stop(); }
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  int32_t placeholder_id() const { return translator_.placeholder_id; }
  const text::ImageText& written() const { return translator_.written; }
  int64_t token_count(images::ImageSize size) const { return translator_.token_count(size); }

  struct Job {
    std::vector<int32_t> prompt;  // with a placeholder for each file
    std::vector<ImageFile> files;
    std::shared_ptr<std::atomic<bool>> cancelled;  // nobody waits for it any more
    // On a thread of the reader's, or the one that stops it; not where it was cancelled while
    // nobody worked on it.
    std::function<void(ApiResult<serve::ImagePrompt> prompt)> done;
  };
  // 429 where too many wait, 503 where it has stopped; `done` is not called then.
  std::optional<ApiError> read(Job job);
  ImageReaderCounts counts();
  // Reads no more: what waits, and what is being read, is done with 503.
  void stop();

 private:
  struct Request {
    ImageQueue::Id id = 0;
    Job job;
    double came_s = 0;
    std::vector<images::Image> decoded;
  };
  using RequestRef = std::shared_ptr<Request>;

  void decode_until_stopped();
  void read_until_stopped();
  // Waits for a request that `next` gives; null once it has stopped.
  RequestRef wait_for(const std::function<std::optional<ImageQueue::Id>()>& next);
  void forget_cancelled();
  // Runs a part of the work on a request. What it fails with, and the prompt, end the request.
  void work_on(const RequestRef& request,
               const std::function<std::optional<ApiResult<serve::ImagePrompt>>()>& part);
  std::optional<ApiResult<serve::ImagePrompt>> decode(Request& request);
  ApiResult<serve::ImagePrompt> read_now(Request& request, const GoOn& go_on);
  GoOn go_on_of(const Request& request) const;
  void note_end(const Request& request, bool read);
  // Reads one that waits and is small, if any.
  void read_aside();

  const ImageTranslator translator_;
  const StopWatch watch_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // guards the three below
  ImageQueue queue_;
  std::map<ImageQueue::Id, RequestRef> requests_;
  ImageReaderCounts counts_;
  serve::Histogram queue_seconds_{serve::latency_bounds()};
  serve::Histogram decode_seconds_{serve::latency_bounds()};
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
};

}  // namespace jige::api
