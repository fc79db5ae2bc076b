#include "profile/busy_hosts.h"

namespace jige::profile {
namespace {

constexpr double kIdleMin = 0.1;
constexpr int64_t kTicksMin = 400;  // two seconds of two processors; less says little

}  // namespace

void BusyHosts::add(size_t host, const ProcessorTime& during_run) {
  seen_[host].time += during_run;
}

std::vector<size_t> BusyHosts::take() {
  std::vector<size_t> found;
  for (size_t host = 0; host < seen_.size(); ++host) {
    Seen& seen = seen_[host];
    if (seen.told || seen.time.all < kTicksMin || seen.time.idle_share() >= kIdleMin) continue;
    seen.told = true;
    found.push_back(host);
  }
  return found;
}

}  // namespace jige::profile
