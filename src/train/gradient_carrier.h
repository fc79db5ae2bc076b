// GradientCarrier: how gradients come from the device that computes them to memory that ranks
// exchange (gradient_sync.h), and how what ranks made of them goes back.
//
// Where the host computes it is one memory, and nothing moves; between a GPU and the host copies
// run on streams of their own beside the passes (staged_gradients.h). A transport that reads and
// writes the memory of GPUs would be one more of these, whose memory() is theirs.
//
//   fetch   device to host, once what is on the compute stream is done; then something goes on
//   store   host to device, before what is put on the compute stream later
//   expect  host to device as it arrives, beside whatever runs; await_* before it is used
//
// Threads: one at a time, but that expect() may be called from what goes on behind a fetch().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "model/weights.h"
#include "tensor/device.h"
#include "train/optimizer_shares.h"

namespace jige::train {

// Elements of a node's gradient memory.
struct NodePart {
  size_t node = 0;
  ElementRange elements;
};

// How to wait for what others send to memory(node); called from any thread.
struct GradientArrival {
  std::function<Status(const ElementRange& elements)> part;
  std::function<Status()> all;  // and until the memory may change
};

class GradientCarrier {
 public:
  // That of the device. Both must outlive it. Fails with kExhausted.
  static Result<std::unique_ptr<GradientCarrier>> make(Device& device,
                                                       const model::ModelWeights& weights);
  virtual ~GradientCarrier() = default;

  // Where ranks exchange the gradients of a node, all of them; empty where it has none.
  virtual std::span<std::byte> memory(size_t node) const = 0;

  // Forgets what was expected before. REQUIRES: all of it was awaited.
  virtual void restart() = 0;
  // Brings elements to memory(), as the work that is on `compute` leaves them; then calls `go_on`,
  // in the order of fetches. REQUIRES: nothing changes the elements on the device before that.
  virtual Status fetch(Stream& compute, const NodePart& part, std::function<Status()> go_on) = 0;
  // Returns when all was fetched and went on, or with the first error of what did.
  virtual Status await_fetched() = 0;
  // Brings elements to the device: what is put on `compute` later finds them.
  virtual void store(Stream& compute, const NodePart& part) = 0;
  // Brings elements to the device as they arrive; once for a node between two calls of restart().
  virtual void expect(const NodePart& part, GradientArrival arrival) = 0;
  // Returns when what is put on `compute` later finds the elements, which are expected of the node
  // or will be; or with an error of what was to bring them.
  virtual Status await_part(Stream& compute, size_t node, const ElementRange& elements) = 0;
  // The same for all that is expected of the node, and behind GradientArrival::all.
  virtual Status await_all(Stream& compute, size_t node) = 0;
};

}  // namespace jige::train
