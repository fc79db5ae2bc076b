#include "base/free_memory.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace jige {
namespace {

constexpr size_t kKernelFileBytesMax = size_t{1} << 16;

// The number behind `field` at the begin of a line, or -1.
int64_t number_behind(std::string_view text, std::string_view field) {
  size_t place = 0;
  while (place < text.size() && !text.substr(place).starts_with(field)) {
    place = text.find('\n', place);
    place = place == std::string_view::npos ? text.size() : place + 1;
  }
  if (place >= text.size()) return -1;
  const size_t begin = text.find_first_not_of(" \t", place + field.size());
  if (begin == std::string_view::npos) return -1;
  int64_t number = -1;
  std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return number;
}

std::string kernel_file(const std::string& path) {
  auto text = read_file(path, kKernelFileBytesMax);
  return text ? std::move(*text) : std::string();
}

}  // namespace

int64_t free_bytes_of(const MemoryFiles& files) {
  int64_t free_bytes = INT64_MAX;
  if (const int64_t kib = number_behind(files.meminfo, "MemAvailable:"); kib >= 0) {
    free_bytes = std::min(kib, INT64_MAX / 1024) * 1024;
  }
  const int64_t limit = number_behind(files.limit, "");  // "max" has no number
  const int64_t used = number_behind(files.used, "");
  if (limit < 0 || used < 0) return free_bytes;
  // The older kind of groups has its children's in fields of their own.
  const int64_t of_all = number_behind(files.stat, "total_inactive_file");
  const int64_t idle = of_all >= 0 ? of_all : number_behind(files.stat, "inactive_file");
  const int64_t taken = used - std::clamp<int64_t>(idle, 0, used);
  return std::min(free_bytes, std::max<int64_t>(limit - taken, 0));
}

int64_t host_free_bytes() {
  const std::string meminfo = kernel_file("/proc/meminfo");
  const std::string group = "/sys/fs/cgroup/";
  return std::min(free_bytes_of({.meminfo = meminfo,
                                 .limit = kernel_file(group + "memory.max"),
                                 .used = kernel_file(group + "memory.current"),
                                 .stat = kernel_file(group + "memory.stat")}),
                  free_bytes_of({.meminfo = meminfo,
                                 .limit = kernel_file(group + "memory/memory.limit_in_bytes"),
                                 .used = kernel_file(group + "memory/memory.usage_in_bytes"),
                                 .stat = kernel_file(group + "memory/memory.stat")}));
}

}  // namespace jige
