// Greedy answers to many prompts at once: an engine (engine.h) that lives as long as the call.
//
// Threads: one at a time, on the caller's thread, where the callback runs, too; the cancellation
// flag may be set from anywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "model/inference.h"
#include "text/tokenizer.h"

namespace jige::serve {

struct ReplyOptions {
  int64_t tokens_max = 64;              // of an answer
  int32_t adapter = model::kNoAdapter;  // one of the model's
  ThreadTeam* team = nullptr;           // as EngineOptions::sampling_team
  const std::atomic<bool>* cancelled = nullptr;
};

// Takes the answer to a prompt; kInvalidArgument where the prompt is empty or leaves no room in the
// context, kCorrupt where the model gives no numbers.
using ReplyTaker = std::function<Status(size_t prompt, Result<std::string> text)>;

// Answers the prompts and hands out what comes, in their order: the text that Generator gives for
// the prompt alone, without sampling, up to the end-of-text ids. As many at once as the model has
// rows of logits, and as its cache holds. Fails as `take` does, as Engine::create() does, and with
// kCancelled once `cancelled` is set.
Status reply_to_all(model::InferenceModel& model, const text::Tokenizer& tokenizer,
                    std::span<const std::vector<int32_t>> prompts, const ReplyOptions& options,
                    const ReplyTaker& take);

}  // namespace jige::serve
