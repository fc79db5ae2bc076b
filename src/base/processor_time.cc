#include "base/processor_time.h"

#include <charconv>

#include "base/file.h"

namespace jige {
namespace {

constexpr size_t kStatMax = size_t{1} << 22;

// "cpu", then user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user.
constexpr int kFields = 8, kIdleField = 3, kWaitField = 4;

}  // namespace

ProcessorTime parse_processor_time(std::string_view stat) {
  constexpr std::string_view kAll = "cpu ";
  if (!stat.starts_with(kAll)) return {};
  stat = stat.substr(kAll.size(), stat.find('\n') - kAll.size());
  ProcessorTime time;
  for (int field = 0; field < kFields; ++field) {
    while (stat.starts_with(' ')) stat.remove_prefix(1);
    int64_t ticks = 0;
    const auto [end, error] = std::from_chars(stat.data(), stat.data() + stat.size(), ticks);
    if (error != std::errc() || ticks < 0 || ticks > INT64_MAX / kFields) return {};
    stat.remove_prefix(static_cast<size_t>(end - stat.data()));
    time.all += ticks;
    if (field == kIdleField || field == kWaitField) time.idle += ticks;
  }
  return time;
}

ProcessorTime processor_time() {
  const auto stat = read_file("/proc/stat", kStatMax);
  return stat ? parse_processor_time(*stat) : ProcessorTime();
}

}  // namespace jige
