#include "api/image_reader.h"

#include <utility>

#include "api/body_job.h"

namespace jige::api {
namespace {

constexpr double kImagesRetryS = 5;

}  // namespace

ImageReader::ImageReader(ImageTranslator translator, Limits limits)
    : translator_(std::move(translator)),
      queue_({.thread_count = 1, .jobs_max = limits.requests_max, .bytes_max = limits.bytes_max}) {}

std::optional<ApiError> ImageReader::read(Job job) {
  size_t bytes = 0;
  for (const ImageFile& file : job.files) bytes += file.bytes.size();
  std::function<void()> run = [this, job = std::make_shared<Job>(std::move(job))] {
    if (!*job->cancelled) job->done(read_now(*job));
  };
  if (queue_.try_push(run, bytes)) return std::nullopt;
  if (stopped_) return draining_error();
  return ApiError{.status = 429,
                  .message = "too many images wait to be read; try again",
                  .code = "queue_full",
                  .retry_after_s = kImagesRetryS};
}

ApiResult<serve::ImagePrompt> ImageReader::read_now(Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return tl::unexpected(draining_error());
    reading_ = job.cancelled;
  }
  const GoOn go_on = [&cancelled = *job.cancelled]() -> Status {
    if (!cancelled) return {};
    return fail(Code::kCancelled, "the request was cancelled");
  };
  std::vector<images::Image> decoded;
  for (ImageFile& file : job.files) {
    auto image = images::decode_image(std::as_bytes(std::span(file.bytes)), file.where);
    if (!image) return tl::unexpected(to_text_error(image.error(), file.where));
    if (image->width != file.size.width || image->height != file.size.height) {
      return tl::unexpected(
          bad_field(file.where, "{}: the file says two sizes; save the image anew", file.where));
    }
    decoded.push_back(std::move(*image));
    file.bytes = {};
    if (*job.cancelled) break;
  }
  auto prompt = go_on().and_then([&] { return translator_.read(job.prompt, decoded, go_on); });
  if (prompt) return std::move(*prompt);
  if (stopped_) return tl::unexpected(draining_error());
  return tl::unexpected(to_api_error(prompt.error(), "messages"));
}

void ImageReader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (reading_) *reading_ = true;
  }
  queue_.stop();
}

}  // namespace jige::api
