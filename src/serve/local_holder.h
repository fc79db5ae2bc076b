// LocalHolder: holds layers of a model on another GPU of this machine, on a thread of this process.
//
//   JIGE_TRY(auto second, LocalHolder::create(std::move(gpu), {.folder = …, .memory_bytes = …}));
//   JIGE_TRY(auto group, LayerGroup::connect(folder, {.local = {second}, .gpu = …}));
//
// What it is sent and what it answers is what LayerHolder says, over a pair of sockets that nobody
// else reaches; rows are lent, so that the GPU copies them from where another has put them, and
// back to there. One conversation at a time: the next begins when the one before has ended.
// Threads: connect() by any; one of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "comm/socket.h"
#include "serve/layer_holder.h"
#include "tensor/device.h"

namespace jige::serve {

class LocalHolder {
 public:
  // `name` is that of the GPU for people, as "cuda:1". Fails as folder_digest does.
  static Result<std::shared_ptr<LocalHolder>> create(std::string name,
                                                     std::unique_ptr<Device> device,
                                                     const LayerHolderOptions& options);
  // Ends the conversation. REQUIRES: nobody waits for answers any more.
  ~LocalHolder();
  LocalHolder(const LocalHolder&) = delete;
  LocalHolder& operator=(const LocalHolder&) = delete;

  const std::string& name() const { return name_; }
  // The program's end of a new conversation. Fails with kUnavailable where the system has no
  // sockets left.
  Result<comm::Socket> connect();
  // Rows for it, which a message behind them tells of; they stay as long as the conversation.
  LentRows& rows() { return rows_; }

 private:
  LocalHolder(std::string name, std::unique_ptr<Device> device)
      : name_(std::move(name)), device_(std::move(device)) {}
  void converse();

  const std::string name_;
  std::unique_ptr<Device> device_;
  LentRows rows_;
  std::unique_ptr<LayerHolder> holder_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<comm::Socket> waiting_;
  std::thread thread_;
};

}  // namespace jige::serve
