#include "api/request_log.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/log.h"

namespace jige::api {
namespace {

// "2026-11-29T14:12:00.123Z".
std::string utc_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", std::string_view(text, size), ms % 1000);
}

}  // namespace

Result<std::shared_ptr<RequestLog>> RequestLog::open(const std::string& path, int64_t bytes_max) {
  JIGE_TRY(LogFile file, LogFile::open(path, bytes_max));
  return std::make_shared<RequestLog>(std::move(file));
}

void RequestLog::note(const EndedRequest& request) {
  const Status written =
      file_.append(dump_json({{"time", utc_text()},
                              {"id", request.id},
                              {"client", request.client},
                              {"method", request.method},
                              {"path", request.path},
                              {"status", request.status > 0 ? Json(request.status) : Json(nullptr)},
                              {"seconds", request.seconds},
                              {"bytes", request.bytes},
                              {"whole", request.whole}}));
  if (!written && !std::exchange(told_, true)) {
    log_warn("requests are not written down for now: {}", written.error().message);
  }
  if (written) told_ = false;
}

}  // namespace jige::api
