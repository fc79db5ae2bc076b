#include "cli/host_lookups.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace jige::cli {

struct HostLookups::Shared {
  explicit Shared(LookUp with) : look_up(std::move(with)) {}

  const LookUp look_up;
  std::mutex mutex;  // guards what follows
  size_t threads = 0;
  std::set<std::string> under_way;
  std::deque<std::string> waiting;
  std::vector<FoundHost> found;
};

HostLookups::HostLookups(LookUp look_up) : shared_(std::make_shared<Shared>(std::move(look_up))) {}

HostLookups::~HostLookups() {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.clear();
}

void HostLookups::want(std::vector<std::string> urls) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.clear();
  for (std::string& url : urls) {
    const bool comes = shared_->under_way.contains(url) ||
                       std::ranges::find(shared_->waiting, url) != shared_->waiting.end();
    if (!comes) shared_->waiting.push_back(std::move(url));
  }
  // Those that run already may hang.
  for (size_t i = 0; i < shared_->waiting.size() && shared_->threads < kAtOnce; ++i) {
    ++shared_->threads;
    try {
      std::thread([shared = shared_] { run(*shared); }).detach();
    } catch (const std::system_error&) {
      --shared_->threads;  // there is no room for it: the next wish tries again
      return;
    }
  }
}

bool HostLookups::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->threads == 0;
}

std::vector<FoundHost> HostLookups::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->found, {});
}

// Until nothing waits.
void HostLookups::run(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  while (!shared.waiting.empty()) {
    const std::string url = std::move(shared.waiting.front());
    shared.waiting.pop_front();
    shared.under_way.insert(url);
    lock.unlock();
    Result<api::HostAddress> address = shared.look_up(url);
    lock.lock();
    shared.under_way.erase(url);
    shared.found.push_back({url, std::move(address)});
  }
  --shared.threads;
}

}  // namespace jige::cli
