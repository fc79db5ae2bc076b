// LayerHolder: holds some layers of a model for a program on another machine, and computes them
// when it is sent rows (layer_messages.h).
//
//   JIGE_TRY(const auto holder, LayerHolder::listen(device, {.folder = …, .listen = …}));
//   holder->serve(cancelled, on_event)             // until the flag is set
//
// The device is a processor or a GPU: of the latter, rows come into pinned memory of the host.
// One program is served at a time; when it goes, its layers are given back and the next one may
// come. Whoever reaches the address may use it, and nothing is encrypted: it is for networks one
// trusts. Nothing that arrives can take more memory than was agreed on.
// Threads: one thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "comm/socket.h"
#include "model/inference.h"
#include "serve/layer_messages.h"
#include "serve/lent_rows.h"
#include "tensor/device.h"

namespace jige::serve {

struct LayerHolderOptions {
  std::string folder;                   // of the model
  comm::Address listen;                 // of who listens
  std::optional<LayerComputer> gpu;     // that the device is; none: it is a processor
  int64_t memory_bytes = 0;             // for layers, their caches and buffers
  LentRows* lent = nullptr;             // of a program in this process; null: rows are sent
  std::function<void()> before_answer;  // to rows; for tests that hold it up; may be empty
};

class LayerHolder {
 public:
  struct Event {
    enum class Kind { kHolding, kReleased } kind = Kind::kHolding;
    std::string peer;
    int64_t layer_begin = 0, layer_end = 0;
    int64_t bytes = 0;   // of kHolding: taken
    int64_t rows = 0;    // of kReleased: computed
    std::string reason;  // of kReleased, where it did not just go
  };

  // Fails as folder_digest and Listener::open do.
  static Result<std::unique_ptr<LayerHolder>> listen(Device& device,
                                                     const LayerHolderOptions& options);
  // One that does not listen. Fails as folder_digest does.
  static Result<std::unique_ptr<LayerHolder>> create(Device& device,
                                                     const LayerHolderOptions& options);

  // REQUIRES: it listens.
  const comm::Address& address() const { return listener_->address(); }
  // Fails where it cannot listen any more. REQUIRES: it listens.
  Status serve(const std::atomic<bool>& cancelled,
               const std::function<void(const Event&)>& on_event);
  // One program, until it goes, fails, or the flag is set.
  void serve_one(comm::Socket& socket, const std::atomic<bool>& cancelled,
                 const std::function<void(const Event&)>& on_event);

 private:
  LayerHolder(Device& device, const LayerHolderOptions& options, LayerGreeting greeting);
  // Loads what is asked for.
  Result<std::unique_ptr<model::InferenceModel>> hold(const std::string& text,
                                                      const std::string& peer) const;
  // The conversation with one program; sets what the event of its end says.
  Status converse(comm::Socket& socket, const std::atomic<bool>& cancelled,
                  const std::function<void(const Event&)>& on_event, Event* end);
  Status answer_rows(comm::Socket& socket, model::InferenceModel& layers, int64_t bytes,
                     comm::Deadline deadline, Event* end);
  // Rows of sequences_ that come by the socket, or stand in memory.
  Status answer_sent(comm::Socket& socket, model::InferenceModel& layers, comm::Deadline deadline);
  Status answer_lent(comm::Socket& socket, model::InferenceModel& layers, comm::Deadline deadline);

  Device& device_;
  const LayerHolderOptions options_;
  const LayerGreeting greeting_;
  std::optional<comm::Listener> listener_;
  SentSequences sequences_;
};

}  // namespace jige::serve
