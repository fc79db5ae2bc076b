#include "serve/local_holder.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace jige::serve {

Result<std::shared_ptr<LocalHolder>> LocalHolder::create(std::string name,
                                                         std::unique_ptr<Device> device,
                                                         const LayerHolderOptions& options) {
  std::shared_ptr<LocalHolder> made(new LocalHolder(std::move(name), std::move(device)));
  LayerHolderOptions own = options;
  own.lent = &made->rows_;
  JIGE_TRY(made->holder_, LayerHolder::create(*made->device_, own));
  made->thread_ = std::thread([holder = made.get()] { holder->converse(); });
  return made;
}

LocalHolder::~LocalHolder() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<comm::Socket> LocalHolder::connect() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(Code::kUnavailable, "no pair of sockets for {}: {}", name_, std::strerror(errno));
  }
  comm::Socket mine(ends[0], name_), others(ends[1], "this process");
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(others));
  }
  changed_.notify_all();
  return mine;
}

void LocalHolder::converse() {
  while (true) {
    comm::Socket socket;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      socket = std::move(waiting_.front());
      waiting_.pop_front();
    }
    // What goes wrong is told to the program, which is who reads the log.
    holder_->serve_one(socket, ending_, [](const LayerHolder::Event&) {});
  }
}

}  // namespace jige::serve
