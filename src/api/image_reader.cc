#include "api/image_reader.h"

#include <malloc.h>

#include <utility>

#include "api/body_job.h"
#include "base/log.h"

namespace jige::api {
namespace {

constexpr int kDecoders = 2;  // so that a small file does not wait for a large one
constexpr double kImagesRetryS = 5;
// Behind a request with so many, what is free goes back to the system.
constexpr int64_t kManyPixels = 1 << 20;

int64_t pixels_of(const std::vector<ImageFile>& files) {
  int64_t pixels = 0;
  for (const ImageFile& file : files) pixels += int64_t{file.size.width} * file.size.height;
  return pixels;
}

}  // namespace

ImageReader::ImageReader(ImageTranslator translator, ImageQueue::Limits limits)
    : translator_(std::move(translator)), queue_(limits) {
  for (int i = 0; i < kDecoders; ++i) threads_.emplace_back([this] { decode_until_stopped(); });
  threads_.emplace_back([this] { read_until_stopped(); });
}

std::optional<ApiError> ImageReader::read(Job job) {
  ImageQueue::Size size{.pixels = pixels_of(job.files)};
  for (const ImageFile& file : job.files) {
    size.bytes += file.bytes.size();
    size.tokens += translator_.token_count(file.size);
  }
  auto request = std::make_shared<Request>();
  request->job = std::move(job);
  request->came_s = watch_.seconds();
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return draining_error();
    forget_cancelled();
    const auto id = queue_.add(size, request->came_s);
    if (!id) {
      ++counts_.refused;
      return ApiError{.status = 429,
                      .message = "too many images wait to be read; try again",
                      .code = "queue_full",
                      .retry_after_s = kImagesRetryS};
    }
    request->id = *id;
    requests_[*id] = std::move(request);
  }
  wake_.notify_all();
  return std::nullopt;
}

// REQUIRES: mutex_ is held.
void ImageReader::forget_cancelled() {
  for (const ImageQueue::Id id : queue_.idle()) {
    if (!*requests_.at(id)->job.cancelled) continue;
    requests_.erase(id);
    queue_.remove(id);
    ++counts_.cancelled;
  }
}

ImageReaderCounts ImageReader::counts() {
  ImageReaderCounts counts;
  {
    const std::lock_guard lock(mutex_);
    forget_cancelled();
    counts = counts_;
    counts.waiting = queue_.waiting_count();
  }
  counts.queue_seconds = queue_seconds_.snapshot();
  counts.decode_seconds = decode_seconds_.snapshot();
  if (translator_.counts) counts.model = translator_.counts();
  return counts;
}

ImageReader::RequestRef ImageReader::wait_for(
    const std::function<std::optional<ImageQueue::Id>()>& next) {
  std::unique_lock lock(mutex_);
  std::optional<ImageQueue::Id> id;
  wake_.wait(lock, [&] {
    if (stopped_) return true;
    forget_cancelled();
    id = next();
    return id.has_value();
  });
  return id ? requests_.at(*id) : nullptr;
}

void ImageReader::decode_until_stopped() {
  while (const RequestRef request = wait_for([this] { return queue_.next_to_decode(); })) {
    work_on(request, [&] { return decode(*request); });
  }
}

void ImageReader::read_until_stopped() {
  while (const RequestRef request = wait_for([this] { return queue_.next_to_read(); })) {
    work_on(request, [&] {
      const StopWatch watch;
      double aside_s = 0;
      const GoOn go_on = go_on_of(*request);
      return read_now(*request, [&]() -> Status {
        const double begun_s = watch.seconds();
        if (translator_.aside_tokens_max > 0 && 2 * aside_s <= begun_s) {
          read_aside();
          aside_s += watch.seconds() - begun_s;
        }
        return go_on();
      });
    });
  }
}

void ImageReader::read_aside() {
  RequestRef request;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    forget_cancelled();
    const auto id = queue_.next_to_read(translator_.aside_tokens_max);
    if (!id) return;
    request = requests_.at(*id);
  }
  work_on(request, [&] { return read_now(*request, go_on_of(*request)); });
}

void ImageReader::work_on(
    const RequestRef& request,
    const std::function<std::optional<ApiResult<serve::ImagePrompt>>()>& part) {
  try {
    std::optional<ApiResult<serve::ImagePrompt>> end = part();
    if (!end) {
      const std::lock_guard lock(mutex_);
      queue_.decoded(request->id);
    } else {
      note_end(*request, end->has_value());
      request->job.done(std::move(*end));
    }
    if (!end) return wake_.notify_all();
  } catch (const std::exception& error) {
    // Memory ran out. What the request holds goes with it, and it is answered with 500.
    log_error("the images of a request could not be read: {}", error.what());
  }
  const bool many = pixels_of(request->job.files) >= kManyPixels;
  request->decoded = {};
  {
    const std::lock_guard lock(mutex_);
    queue_.remove(request->id);
    requests_.erase(request->id);
  }
  wake_.notify_all();
  if (many) malloc_trim(0);
}

void ImageReader::note_end(const Request& request, bool read) {
  const std::lock_guard lock(mutex_);
  const bool cancelled = *request.job.cancelled || stopped_;
  ++(read ? counts_.read : cancelled ? counts_.cancelled : counts_.failed);
}

GoOn ImageReader::go_on_of(const Request& request) const {
  return [this, cancelled = request.job.cancelled]() -> Status {
    if (!*cancelled && !stopped_) return {};
    return fail(Code::kCancelled, "the request was cancelled");
  };
}

// Nothing: the model may read them.
std::optional<ApiResult<serve::ImagePrompt>> ImageReader::decode(Request& request) {
  const GoOn go_on = go_on_of(request);
  for (ImageFile& file : request.job.files) {
    const StopWatch watch;
    auto image = images::decode_image(std::as_bytes(std::span(file.bytes)), file.where, {}, go_on);
    if (!image && stopped_) return tl::unexpected(draining_error());
    if (!image) return tl::unexpected(to_text_error(image.error(), file.where));
    if (image->width != file.size.width || image->height != file.size.height) {
      return tl::unexpected(
          bad_field(file.where, "{}: the file says two sizes; save the image anew", file.where));
    }
    decode_seconds_.observe(watch.seconds());
    request.decoded.push_back(std::move(*image));
    file.bytes = {};
  }
  return std::nullopt;
}

ApiResult<serve::ImagePrompt> ImageReader::read_now(Request& request, const GoOn& go_on) {
  queue_seconds_.observe(watch_.seconds() - request.came_s);
  auto prompt = go_on().and_then(
      [&] { return translator_.read(request.job.prompt, request.decoded, go_on); });
  if (prompt) return std::move(*prompt);
  if (stopped_) return tl::unexpected(draining_error());
  return tl::unexpected(to_api_error(prompt.error(), "messages"));
}

void ImageReader::stop() {
  std::vector<RequestRef> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    for (const ImageQueue::Id id : queue_.idle()) {
      waiting.push_back(requests_.at(id));
      ++counts_.cancelled;
      requests_.erase(id);
      queue_.remove(id);
    }
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const RequestRef& request : waiting) {
    if (!*request->job.cancelled) request->job.done(tl::unexpected(draining_error()));
  }
}

}  // namespace jige::api
