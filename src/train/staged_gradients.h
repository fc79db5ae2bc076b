// StagedGradients: gradients of a GPU on their way to other ranks and back, through pinned memory
// of the host.
//
// Each direction has a stream, so that both run beside the passes and beside each other: fetches,
// stores (sums that W adds to), and what is expected. A thread waits for fetches and lets them go
// on, another for what arrives, which it sends to the GPU piece by piece. Neither the thread that
// puts passes on the compute stream nor that stream waits for any of it but in await_*(), and
// store() has the stream wait for its copy.
//
// Memory: a pinned copy of all gradients. Threads: as gradient_carrier.h says, and two of its own.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tensor/host_buffer.h"
#include "train/gradient_carrier.h"
#include "train/job_line.h"

namespace jige::train {

class StagedGradients final : public GradientCarrier {
 public:
  static Result<std::unique_ptr<GradientCarrier>> make(Device& device,
                                                       const model::ModelWeights& weights);

  std::span<std::byte> memory(size_t node) const override;
  void restart() override;
  Status fetch(Stream& compute, const NodePart& part, std::function<Status()> go_on) override;
  Status await_fetched() override { return fetched_.drain(); }
  void store(Stream& compute, const NodePart& part) override;
  void expect(const NodePart& part, GradientArrival arrival) override;
  Status await_part(Stream& compute, size_t node, const ElementRange& elements) override;
  Status await_all(Stream& compute, size_t node) override;

 private:
  explicit StagedGradients(const model::ModelWeights& weights);
  void copy(Stream& stream, const NodePart& part, CopyKind kind) const;
  Status take(const NodePart& part, const GradientArrival& arrival);
  // Passes it on, so that nobody waits for what does not come.
  Status noted(Status status);

  const model::ModelWeights& weights_;
  std::vector<HostBuffer> buffers_;  // by node
  std::unique_ptr<Stream> fetches_, stores_, arrivals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::vector<std::optional<Event>> taken_;  // by node, once all that is expected is on its way
  std::optional<Error> error_;               // the first one
  // Last, as their threads use the rest, and what was fetched puts what is expected.
  JobLine expected_, fetched_;
};

// Pinned memory that a rank takes for gradients of so many bytes.
int64_t staged_bytes(const model::WeightsMemory& memory);

}  // namespace jige::train
