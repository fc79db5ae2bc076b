#include "api/request_log.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/log.h"

namespace jige::api {
namespace {

int64_t unix_now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// "2026-11-29T14:12:00.123Z".
std::string utc_text(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", std::string_view(text, size), unix_ms % 1000);
}

struct NotedRequest {
  EndedRequest ended;
  int64_t unix_ms = 0;
  int64_t lost_before = 0;  // that found no room in the queue

  size_t bytes() const {
    return sizeof *this + ended.id.size() + ended.client.size() + ended.method.size() +
           ended.path.size();
  }
};

std::string line_of(const NotedRequest& noted, int64_t lost) {
  const EndedRequest& request = noted.ended;
  Json line = {{"time", utc_text(noted.unix_ms)},
               {"id", request.id},
               {"client", request.client},
               {"method", request.method},
               {"path", request.path},
               {"status", request.status > 0 ? Json(request.status) : Json(nullptr)},
               {"seconds", request.seconds},
               {"bytes", request.bytes},
               {"whole", request.whole}};
  if (lost > 0) line["lost_before"] = lost;
  return dump_json(line);
}

}  // namespace

struct RequestLog::Queue {
  Queue(LogFile log_file, const RequestLogOptions& with)
      : file(std::move(log_file)), options(with) {}
  // REQUIRES: the mutex is held.
  void tell_once(const std::string& why) {
    if (!std::exchange(told, true)) log_warn("requests are not written down for now: {}", why);
  }

  LogFile file;  // the writer's
  const RequestLogOptions options;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<NotedRequest> waiting;  // the first one is being written
  size_t waiting_bytes = 0;
  int64_t dropped = 0;  // since one found room
  int64_t failed = 0;   // since a line could be written
  bool told = false;    // that lines are missing
  bool closing = false, left_behind = false;
  bool ended = false;  // the writer has
};

Result<std::shared_ptr<RequestLog>> RequestLog::open(const std::string& path,
                                                     const RequestLogOptions& options) {
  JIGE_TRY(LogFile file, LogFile::open(path, options.bytes_max));
  return std::make_shared<RequestLog>(std::move(file), options);
}

RequestLog::RequestLog(LogFile file, const RequestLogOptions& options)
    : queue_(std::make_shared<Queue>(std::move(file), options)),
      writer_([queue = queue_] { write(*queue); }) {}

RequestLog::~RequestLog() {
  std::unique_lock lock(queue_->mutex);
  queue_->closing = true;
  queue_->changed.notify_all();
  const std::chrono::duration<double> flush(queue_->options.flush_s);
  const bool ended = queue_->changed.wait_for(lock, flush, [&] { return queue_->ended; });
  queue_->left_behind = !ended;
  const int64_t lost = queue_->dropped + queue_->failed + std::ssize(queue_->waiting);
  if (lost > 0) log_warn("the last {} requests that have ended were not written down", lost);
  lock.unlock();
  if (ended) {
    writer_.join();
  } else {
    writer_.detach();
  }
}

void RequestLog::note(EndedRequest request) {
  NotedRequest noted{.ended = std::move(request), .unix_ms = unix_now_ms()};
  const std::lock_guard lock(queue_->mutex);
  if (queue_->waiting_bytes + noted.bytes() > queue_->options.queue_bytes_max) {
    ++queue_->dropped;
    return queue_->tell_once("the file takes no more lines, or takes them too slowly");
  }
  noted.lost_before = std::exchange(queue_->dropped, 0);
  queue_->waiting_bytes += noted.bytes();
  queue_->waiting.push_back(std::move(noted));
  queue_->changed.notify_all();
}

void RequestLog::write(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  while (true) {
    queue.changed.wait(lock, [&] { return queue.closing || !queue.waiting.empty(); });
    if (queue.waiting.empty() || queue.left_behind) break;
    const NotedRequest& noted = queue.waiting.front();  // what is pushed behind it does not move it
    const int64_t lost = std::exchange(queue.failed, 0) + noted.lost_before;
    lock.unlock();
    const Status written = queue.file.append(line_of(noted, lost));
    lock.lock();
    queue.waiting_bytes -= noted.bytes();
    queue.waiting.pop_front();
    if (!written) {
      queue.failed += lost + 1;
      if (!queue.left_behind) queue.tell_once(written.error().message);
    } else if (queue.waiting.empty()) {
      queue.told = false;
    }
  }
  queue.ended = true;
  queue.changed.notify_all();
}

}  // namespace jige::api
