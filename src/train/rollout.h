// Where a run that learns from rewards gets its answers: something that draws them with the
// weights that are being trained, as they are. `train` knows nothing of what does it.
//
// Contract: an answer depends on the weights, its request and its place in the group only, never on
// what is drawn beside it; the log-probability of a token is that of the logits themselves,
// whatever temperature and filter it was drawn with.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/go_on.h"
#include "base/result.h"
#include "model/weights.h"
#include "tensor/cpu_device.h"

namespace jige::train {

struct DrawOptions {
  double temperature = 1;  // 0: greedy
  double top_p = 1;
  int64_t tokens_max = 256;  // of an answer
};

struct DrawRequest {
  std::span<const int32_t> prompt;
  bool continues_text = false;  // the answer goes on with the prompt's text
  uint64_t seed = 0;
  int32_t count = 1;  // of answers
  DrawOptions options;
};

struct DrawnAnswer {
  std::vector<int32_t> tokens;  // with the one that ended it; at least one
  std::vector<float> logprobs;  // of each
  std::string text;             // without the one that ended it
  bool cut = false;             // ended by its length

  bool operator==(const DrawnAnswer&) const = default;
};
using AnswerGroup = std::vector<DrawnAnswer>;

// What is to be drawn at most, which decides the memory it takes.
struct DrawSizes {
  int64_t context = 0;      // of prompt and answer together
  int64_t answers_max = 0;  // at once
  int64_t group = 1;        // answers of one request
};

class AnswerSource {
 public:
  virtual ~AnswerSource() = default;
  // The bytes that attach() takes with such weights. Fails with kInvalidArgument on sizes that the
  // model has no room for.
  virtual Result<int64_t> memory_bytes(const model::Architecture& architecture,
                                       const model::WeightsOptions& weights,
                                       const DrawSizes& sizes) const = 0;
  // Takes memory to draw with these weights on this device; both must outlive detach(). Fails with
  // kExhausted, and as the tokenizer in the folder does.
  virtual Status attach(const model::ModelWeights& weights, CpuDevice& device,
                        const std::string& tokenizer_folder, const DrawSizes& sizes) = 0;
  // Gives the memory back; without effect where there is none.
  virtual void detach() = 0;
  // Of what attach() took, also behind detach().
  virtual int64_t peak_bytes() const = 0;

  // The answers to each request, in order. The weights must not change meanwhile. Fails with
  // kCorrupt where they are no numbers, and as `go_on`, which is asked on the caller's thread.
  // REQUIRES: attach().
  virtual Result<std::vector<AnswerGroup>> draw(std::span<const DrawRequest> requests,
                                                const GoOn& go_on) = 0;
};

}  // namespace jige::train
