#include "train/process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/file.h"

namespace jige::train {
namespace {

constexpr size_t kProcFileBytesMax = size_t{1} << 16;
// Less is not worth the faults that follow when it is used again.
constexpr int64_t kReturnedBytesMin = int64_t{4} << 20;

int64_t parse_number(std::string_view text) {
  const size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return 0;
  int64_t number = 0;
  std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return number;
}

int64_t status_field_bytes(std::string_view field) {
  const auto status = read_file("/proc/self/status", kProcFileBytesMax);
  if (!status) return 0;
  const size_t place = status->find(field);
  if (place == std::string::npos) return 0;
  const size_t end = status->find('\n', place);
  return parse_number(std::string_view(*status).substr(place, end - place)) * 1024;
}

}  // namespace

int64_t process_peak_bytes() { return status_field_bytes("VmHWM:"); }

// From statm, which has so many pages: all, resident, of these shared, and so on. It costs the
// kernel a fraction of status, and is asked for in each step.
int64_t process_private_bytes() {
  const auto pages = read_file("/proc/self/statm", kProcFileBytesMax);
  if (!pages) return 0;
  std::string_view rest = *pages;
  const auto next = [&] {
    const size_t blank = std::min(rest.find(' '), rest.size());
    const int64_t number = parse_number(rest.substr(0, blank));
    rest.remove_prefix(std::min(blank + 1, rest.size()));
    return number;
  };
  next();
  const int64_t resident = next();
  return (resident - next()) * sysconf(_SC_PAGESIZE);
}

int64_t free_heap_bytes() { return static_cast<int64_t>(mallinfo2().fordblks); }

void return_freed_memory(int64_t free_before) {
  if (free_heap_bytes() - free_before >= kReturnedBytesMin) malloc_trim(0);
}

int64_t machine_memory_bytes() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const auto text = read_file(path, kProcFileBytesMax);
    const int64_t limit = text ? parse_number(*text) : 0;  // "max" has no number
    if (limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace jige::train
