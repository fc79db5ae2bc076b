#include "kernels/cuda/emulation/late_queue.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

namespace jige::cuda::emulation {
namespace {

constexpr uint64_t kDelayMaxUs = 400;

class LateEvent final : public Event::State {
 public:
  bool complete() const override { return done_.load(std::memory_order_acquire); }
  void wait() override { done_.wait(false, std::memory_order_acquire); }
  void finish() {
    done_.store(true, std::memory_order_release);
    done_.notify_all();
  }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace

LateQueue::~LateQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LateQueue::put(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void LateQueue::put_late(std::function<void()> work) {
  const auto delay = std::chrono::microseconds(rng_.below(kDelayMaxUs));
  put([delay, work = std::move(work)] {
    std::this_thread::sleep_for(delay);
    work();
  });
}

Event LateQueue::record() {
  auto event = std::make_shared<LateEvent>();
  put([event] { event->finish(); });
  return Event(event);
}

void LateQueue::main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace jige::cuda::emulation
