#include "profile/busy_hosts.h"

#include <fmt/format.h>

#include "base/log.h"

namespace jige::profile {
namespace {

constexpr double kIdleMin = 0.1;
constexpr int64_t kTicksMin = 400;  // two seconds of two processors; less says little

}  // namespace

void BusyHosts::add(size_t host, const ProcessorTime& during_run) {
  seen_[host].time += during_run;
}

std::vector<std::string> BusyHosts::take() {
  std::vector<std::string> found;
  for (size_t host = 0; host < seen_.size(); ++host) {
    Seen& seen = seen_[host];
    if (seen.told || seen.time.all < kTicksMin || seen.time.idle_share() >= kIdleMin) continue;
    seen.told = true;
    found.push_back(fmt::format("{} ({:.0f} % idle)", names_[host], 100 * seen.time.idle_share()));
  }
  return found;
}

void BusyHosts::warn() {
  const std::vector<std::string> found = take();
  if (found.empty()) return;
  log_warn(
      "processors had hardly any time left while links were measured, on {}: rates may be what "
      "these hosts can process, and not what their links carry",
      fmt::join(found, ", "));
}

}  // namespace jige::profile
