#include "serve/reply_batch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "serve/answer.h"
#include "serve/engine.h"

namespace jige::serve {
namespace {

constexpr std::chrono::milliseconds kCancelPoll(50);

// Where the engine's thread says that an answer is complete.
struct ReplyBoard {
  std::mutex mutex;
  std::condition_variable changed;
};

class ReplySink final : public RequestSink {
 public:
  explicit ReplySink(ReplyBoard& board) : board_(board) {}

  void on_piece(int32_t, const AnswerPiece& piece) override { text_ += piece.text; }
  void on_choice(const ChoiceEnd&) override {}
  void on_done(const RequestReport&) override { end(std::move(text_)); }
  void on_failed(const Error& error) override { end(tl::unexpected(told_of_weights(error))); }

  void end(Result<std::string> result) {
    const std::lock_guard lock(board_.mutex);
    result_ = std::move(result);
    done_ = true;
    board_.changed.notify_all();
  }

  // False where it is not there soon.
  bool wait() {
    std::unique_lock lock(board_.mutex);
    return board_.changed.wait_for(lock, kCancelPoll, [&] { return done_; });
  }
  // Behind wait().
  Result<std::string> take() { return std::move(result_); }

 private:
  ReplyBoard& board_;
  std::string text_;  // of the engine's thread
  Result<std::string> result_;
  bool done_ = false;
};

EngineOptions engine_options(const model::InferenceModel& model, const ReplyOptions& options) {
  EngineOptions made;
  made.batch_requests_max = static_cast<int32_t>(model.sizes().logit_rows_max);
  made.waiting_requests_max = int64_t{1} << 24;
  made.waiting_prompt_tokens_max = INT64_MAX;
  made.sampling_team = options.team;
  return made;
}

EngineRequest request_of(const std::vector<int32_t>& prompt, const ReplyOptions& options) {
  EngineRequest made;
  made.prompt = prompt;
  made.tokens_max = options.tokens_max;
  made.logprobs = false;
  made.adapter = options.adapter;
  return made;
}

}  // namespace

Status reply_to_all(model::InferenceModel& model, const text::Tokenizer& tokenizer,
                    std::span<const std::vector<int32_t>> prompts, const ReplyOptions& options,
                    const ReplyTaker& take) {
  ReplyBoard board;  // outlives the engine
  JIGE_TRY(const auto engine, Engine::create(model, tokenizer, engine_options(model, options)));
  std::vector<std::shared_ptr<ReplySink>> sinks;
  for (const std::vector<int32_t>& prompt : prompts) {
    sinks.push_back(std::make_shared<ReplySink>(board));
    const auto taken = engine->submit(request_of(prompt, options), sinks.back());
    if (!taken) sinks.back()->end(tl::unexpected(static_cast<const Error&>(taken.error())));
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    while (!sinks[i]->wait()) {
      if (!options.cancelled || !options.cancelled->load()) continue;
      return fail(Code::kCancelled, "by a signal");
    }
    JIGE_DO(take(i, sinks[i]->take()));
  }
  return {};
}

}  // namespace jige::serve
