// What answers are worth: by a rule, or by a program that is started when it is first asked
// (base/line_process.h).
//
// The program gets a line for each answer: the prompt's own record, "completion" with the answer's
// text and "step" in it, in place of fields of these names. It says a line for each: a number, or
// {"reward": number}.
// Threads: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/line_process.h"
#include "base/result.h"
#include "train/grpo_options.h"
#include "train/prompts.h"

namespace jige::train {

struct AnswerToScore {
  const Prompt* prompt = nullptr;
  std::string_view text;
};

class Rewards {
 public:
  explicit Rewards(RewardOptions options) : options_(std::move(options)) {}

  // Fails as LineProcess::exchange, and with kCorrupt where the program says what is no finite
  // number, naming the line. A program that failed is not started again.
  Result<std::vector<double>> score(std::span<const AnswerToScore> answers, int64_t step,
                                    const GoOn& go_on = {});
  // Ends the program.
  void end() { program_.reset(); }

 private:
  Result<std::vector<double>> ask_program(std::span<const AnswerToScore> answers, int64_t step,
                                          const GoOn& go_on);

  RewardOptions options_;
  std::unique_ptr<LineProcess> program_;
};

// A line of a program as a reward; nothing where it is none.
std::optional<double> read_reward(std::string_view line);

}  // namespace jige::train
