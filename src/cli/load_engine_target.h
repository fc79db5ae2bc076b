// A serve::Engine of this process as the target of a load.
//
// Threads: its sinks run on the engine's thread, which is all that the measurement adds there: a
// clock reading a token. The rest on the caller's. The engine must outlive the target's requests:
// stop it, or wait until all are over, before the target goes.
#pragma once

#include <memory>

#include "base/clock.h"
#include "cli/load_driver.h"
#include "serve/engine.h"

namespace jige::cli {

class EngineTarget final : public LoadTarget {
 public:
  // Prompts are random_prompt(prompt_key, …) of this vocabulary; answers are drawn by `sampling`.
  EngineTarget(serve::Engine& engine, int64_t vocab_size, uint64_t prompt_key,
               ops::SamplingParams sampling = {});
  ~EngineTarget() override;

  double now_s() const override;
  void send(size_t index, const sim::RequestShape& shape) override;
  void wait(double seconds_max, std::vector<Finished>& finished) override;
  void cancel_all() override;

 private:
  struct Board;
  class Sink;

  serve::Engine& engine_;
  const int64_t vocab_size_;
  const uint64_t prompt_key_;
  const ops::SamplingParams sampling_;
  std::shared_ptr<Board> board_;  // shared with sinks
};

}  // namespace jige::cli
