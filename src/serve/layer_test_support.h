// A holder of layers in a thread of the test.
//
// Included by tests only. Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/layer_holder.h"
#include "tensor/cpu_device.h"

namespace jige::serve::testing {

inline constexpr int64_t kHolderRoom = int64_t{64} << 20;
// Of models that are divided among holders and served.
inline const model::InferenceOptions kHolderModel = {.context_max = 128,
                                                     .kv_block_count = 80,
                                                     .state_count = 20,
                                                     .batch_tokens_max = 64,
                                                     .logit_rows_max = 24};

class HolderThread {
 public:
  HolderThread(const std::string& folder, int64_t memory_bytes,
               std::function<void()> before_answer = {},
               const comm::Address& listen = {"127.0.0.1", 0})
      : device_({.thread_count = 1}) {
    auto made = LayerHolder::listen(device_, {.folder = folder,
                                              .listen = listen,
                                              .memory_bytes = memory_bytes,
                                              .before_answer = std::move(before_answer)});
    if (!made) {
      ADD_FAILURE() << made.error().message;
      return;
    }
    holder_ = std::move(*made);
    thread_ = std::thread([this] {
      const Status served = holder_->serve(cancelled_, [this](const LayerHolder::Event& event) {
        const std::lock_guard lock(mutex_);
        events_.push_back(event);
      });
      EXPECT_TRUE(served) << served.error().message;
    });
  }
  ~HolderThread() { stop(); }

  comm::Address address() const { return holder_->address(); }
  void stop() {
    cancelled_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::vector<LayerHolder::Event> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  CpuDevice device_;
  std::unique_ptr<LayerHolder> holder_;
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;
  std::vector<LayerHolder::Event> events_;
  std::thread thread_;
};

}  // namespace jige::serve::testing
