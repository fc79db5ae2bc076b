#include "cli/load_engine_target.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

namespace jige::cli {

// What sinks and the driver share.
struct EngineTarget::Board {
  const StopWatch watch;
  std::mutex mutex;
  std::condition_variable came;
  std::vector<Finished> finished;
  std::map<size_t, serve::RequestId> under_way;  // the driver's alone

  void put(Finished one) {
    {
      const std::lock_guard lock(mutex);
      finished.push_back(std::move(one));
    }
    came.notify_one();
  }
};

class EngineTarget::Sink final : public serve::RequestSink {
 public:
  Sink(std::shared_ptr<Board> board, size_t index, int64_t prompt_tokens)
      : board_(std::move(board)), result_{.index = index, .outcome = {}} {
    result_.outcome.prompt_tokens = prompt_tokens;
  }

  void on_piece(int32_t, const serve::AnswerPiece& piece) override {
    if (piece.token >= 0) result_.outcome.token_came(board_->watch.seconds());
  }
  void on_choice(const serve::ChoiceEnd& end) override {
    if (end.finish == serve::FinishReason::kCancelled) result_.outcome.failure = "cancelled";
  }
  void on_done(const serve::RequestReport&) override { finish(); }
  void on_failed(const Error& error) override {
    result_.outcome.failure = code_name(error.code);
    finish();
  }

 private:
  void finish() {
    result_.outcome.end_s = board_->watch.seconds();
    board_->put(std::move(result_));
  }

  std::shared_ptr<Board> board_;
  Finished result_;
};

EngineTarget::EngineTarget(serve::Engine& engine, int64_t vocab_size, uint64_t prompt_key,
                           ops::SamplingParams sampling)
    : engine_(engine),
      vocab_size_(vocab_size),
      prompt_key_(prompt_key),
      sampling_(std::move(sampling)),
      board_(std::make_shared<Board>()) {}

EngineTarget::~EngineTarget() = default;

double EngineTarget::now_s() const { return board_->watch.seconds(); }

void EngineTarget::send(size_t index, const sim::RequestShape& shape) {
  serve::EngineRequest request;
  request.prompt = sim::random_prompt(prompt_key_, index, shape.prompt_tokens, vocab_size_);
  request.sampling = sampling_;
  request.seed = index;
  request.logprobs = false;
  request.tokens_max = shape.output_tokens;
  request.ignore_eos = true;
  const auto sink = std::make_shared<Sink>(board_, index, shape.prompt_tokens);
  const Result<serve::RequestId> id = engine_.submit(std::move(request), sink);
  if (id) {
    board_->under_way[index] = *id;
  } else {
    sink->on_failed(id.error());
  }
}

void EngineTarget::wait(double seconds_max, std::vector<Finished>& finished) {
  std::unique_lock lock(board_->mutex);
  board_->came.wait_for(lock, std::chrono::duration<double>(seconds_max),
                        [&] { return !board_->finished.empty(); });
  for (Finished& one : std::exchange(board_->finished, {})) {
    board_->under_way.erase(one.index);
    finished.push_back(std::move(one));
  }
}

void EngineTarget::cancel_all() {
  for (const auto& [index, id] : board_->under_way) engine_.cancel(id);
}

}  // namespace jige::cli
