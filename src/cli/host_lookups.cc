#include "cli/host_lookups.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace jige::cli {

struct HostLookups::Shared {
  explicit Shared(LookUp with) : look_up(std::move(with)) {}

  const LookUp look_up;
  std::mutex mutex;  // guards what follows
  bool running = false;
  std::string under_way;  // while it is running
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
    const bool comes = (shared_->running && shared_->under_way == url) ||
                       std::ranges::find(shared_->waiting, url) != shared_->waiting.end();
    if (!comes) shared_->waiting.push_back(std::move(url));
  }
  if (shared_->waiting.empty() || shared_->running) return;
  shared_->running = true;
  try {
    std::thread([shared = shared_] { run(*shared); }).detach();
  } catch (const std::system_error&) {
    shared_->running = false;  // there is no room for a thread: the next wish tries again
  }
}

bool HostLookups::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return !shared_->running;
}

std::vector<FoundHost> HostLookups::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->found, {});
}

// Until nothing waits.
void HostLookups::run(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  while (!shared.waiting.empty()) {
    shared.under_way = std::move(shared.waiting.front());
    shared.waiting.pop_front();
    const std::string url = shared.under_way;
    lock.unlock();
    Result<api::HostAddress> address = shared.look_up(url);
    lock.lock();
    shared.found.push_back({url, std::move(address)});
  }
  shared.running = false;
}

}  // namespace jige::cli
