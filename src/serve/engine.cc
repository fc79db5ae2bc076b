#include "serve/engine.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/counted.h"
#include "serve/engine_loop.h"
#include "serve/request_check.h"

namespace jige::serve {
namespace {

// A token stands for more bytes than this only in unusual texts; a guess that is too low only makes
// admission_check less strict than submit().
constexpr int64_t kBytesPerTokenGuess = 8;
constexpr double kWaitSecondsMax = 1e6;

Status check_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return {};
  return fail(Code::kInvalidArgument, "{} is {}; it must be in {}..{}", name, value, low, high);
}

}  // namespace

Status validate(const EngineOptions& options) {
  JIGE_DO(check_range("requests of a batch", options.batch_requests_max, 1, 1 << 16));
  JIGE_DO(
      check_range("requests of a batch of later plans", options.replan_requests_max, 0, 1 << 16));
  JIGE_DO(check_range("tokens of a batch", options.batch_tokens_max, 0, 1 << 20));
  JIGE_DO(check_range("prompts of a round", options.round_prompts, 1, 1 << 16));
  JIGE_DO(check_range("steps of a round", options.round_steps, 1, 1 << 20));
  JIGE_DO(check_range("batches in flight", options.batches_in_flight, 1, 1 << 10));
  JIGE_DO(
      check_range("requests for each batch in flight", options.in_flight_requests_min, 1, 1 << 16));
  JIGE_DO(check_range("preemptions of a request", options.preemptions_max, 0, 1 << 20));
  JIGE_DO(check_range("kept states", options.kept_state_count, 0, 1 << 16));
  JIGE_DO(validate(options.drafts));
  JIGE_DO(check_range("choices of a request", options.choices_max, 1, 256));
  JIGE_DO(check_range("waiting requests", options.waiting_requests_max, 1, 1 << 24));
  JIGE_DO(check_range("waiting prompt tokens", options.waiting_prompt_tokens_max, 1, INT64_MAX));
  if (options.stall_seconds_max > 0) return {};
  return fail(Code::kInvalidArgument, "seconds without an iteration are {}; it must be above 0",
              options.stall_seconds_max);
}

int32_t concurrent_requests_max(const EngineOptions& options) {
  return std::max(options.batch_requests_max, options.replan_requests_max);
}

plan::ServeSchedulerOptions scheduler_options(const EngineOptions& options,
                                              const model::InferenceSizes& sizes) {
  const int64_t batch_tokens =
      options.batch_tokens_max > 0 ? options.batch_tokens_max : sizes.batch_tokens_max;
  return {.policy = options.policy,
          .admission = options.admission,
          .batch_requests_max = options.batch_requests_max,
          .batch_tokens_max = static_cast<int32_t>(batch_tokens),
          .sample_rows_max = static_cast<int32_t>(sizes.logit_rows_max),
          .round_prompts = options.round_prompts,
          .round_steps = options.round_steps,
          .batches_in_flight_max = options.batches_in_flight,
          .in_flight_requests_min = options.in_flight_requests_min,
          .preemptions_max = options.preemptions_max,
          .fair_share = options.fair_share,
          .shortest_first = sizes.embeds && !options.fair_share,
          .whole_prompt_tokens = sizes.whole_texts ? static_cast<int32_t>(sizes.context_max) : 0,
          .state_count = static_cast<int32_t>(sizes.state_count) - options.kept_state_count,
          .kept_state_count = options.kept_state_count,
          .pool = {.block_count = static_cast<int32_t>(sizes.kv_block_count),
                   .block_tokens = static_cast<int32_t>(ops::kKvBlockTokens),
                   .prefix_cache = options.prefix_cache}};
}

struct Engine::Impl {
  Impl(model::InferenceModel& served, const text::Tokenizer& text, EngineOptions wanted,
       std::unique_ptr<EventLog> log)
      : options(std::move(wanted)),
        model(served),
        tokenizer(text),
        inbox({options.waiting_requests_max, options.waiting_prompt_tokens_max}),
        board(served.sizes().kv_block_count, options.stall_seconds_max,
              plan::settings_of(scheduler_options(options, served.sizes()))),
        loop(served, text, end_ids(text, served.config()),
             RecordedScheduler(scheduler_options(options, served.sizes()), std::move(log)),
             {options, inbox, board, histograms}),
        thread([this] { loop.run(); }) {}

  int64_t context_max() const {
    return std::min(model.context_max(), model.sizes().kv_block_count * ops::kKvBlockTokens);
  }
  RequestBounds bounds(const EngineRequest& request) const {
    return {.context_max = context_max(),
            .model_context_max = model.config().context_max,
            .vocab_size = model.config().vocab_size,
            .kv_block_count = model.sizes().kv_block_count,
            .state_count = model.sizes().state_count - options.kept_state_count,
            .choices_max = options.choices_max,
            .embeds = model.sizes().embeds,
            .width = model.config().hidden_size,
            .takes_rows = model.takes_given_rows(),
            .takes_mutual_rows = model.check_mutual_rows().has_value(),
            .forward_rows_max = model.sizes().batch_tokens_max,
            .turns_by_places = model.turns_by_places(),
            .layer_count = model.config().layer_count,
            .token_types = model.config().token_types,
            .adapter_known =
                request.adapter == model::kNoAdapter || model.has_adapter(request.adapter)};
  }
  double retry_after_seconds() const;
  void stop();

  const EngineOptions options;
  model::InferenceModel& model;
  const text::Tokenizer& tokenizer;
  Inbox inbox;
  StatusBoard board;
  EngineHistograms histograms;
  EngineLoop loop;
  std::atomic<RequestId> next_id{1};
  std::mutex join_mutex;
  std::thread thread;  // after what it uses
  const std::thread::id thread_id = thread.get_id();
};

double Engine::Impl::retry_after_seconds() const {
  return retry_after(inbox.waiting_requests(), board.requests_per_s());
}

void Engine::Impl::stop() {
  inbox.stop();
  if (std::this_thread::get_id() == thread_id) return;  // from a sink
  const std::lock_guard lock(join_mutex);
  if (thread.joinable()) thread.join();
}

Result<std::unique_ptr<Engine>> Engine::create(model::InferenceModel& model,
                                               const text::Tokenizer& tokenizer,
                                               EngineOptions options) {
  JIGE_DO(validate(options));
  if (options.batches_in_flight > model.sizes().forwards_max) {
    return fail(Code::kUnsupported,
                "{} batches in flight of a model loaded for {} under way at once; load it for as "
                "many",
                options.batches_in_flight, counted(model.sizes().forwards_max, "forward"));
  }
  if (model.sizes().whole_texts) options.prefix_cache = false;
  const int64_t states = model.sizes().state_count;
  if (options.batches_in_flight > 1) options.kept_state_count = 0;
  if (states > 0) {  // the scheduler would have no use for either
    if (options.kept_state_count == 0) options.prefix_cache = false;
    if (options.batches_in_flight > 1 || model.beyond()) options.drafts.tokens_max = 0;
  }
  if (states == 0 || !options.prefix_cache) options.kept_state_count = 0;
  if (states > 0 && options.kept_state_count >= states) {
    return fail(Code::kInvalidArgument,
                "{} states are to be kept for later prompts and the model has {} in all; load it "
                "with more, since a request needs one too",
                options.kept_state_count, states);
  }
  std::unique_ptr<EventLog> log;
  if (!options.event_log_path.empty()) {
    JIGE_TRY(log, EventLog::create(options.event_log_path));
  }
  auto impl = std::make_unique<Impl>(model, tokenizer, std::move(options), std::move(log));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() { stop(); }

Status Engine::admission_check(int64_t prompt_byte_count) const {
  Status status =
      impl_->inbox.check(prompt_byte_count / kBytesPerTokenGuess, impl_->retry_after_seconds());
  if (!status) impl_->board.refused(0);
  return status;
}

tl::expected<RequestId, Refusal> Engine::submit(EngineRequest request,
                                                std::shared_ptr<RequestSink> sink) {
  JIGE_CHECK(sink, "a request without a sink");
  const int64_t now_ns = RealClock().now_ns();
  if (auto refusal = check_request(request, impl_->bounds(request))) {
    impl_->board.refused(0);
    return tl::unexpected(std::move(*refusal));
  }
  const RequestId id = impl_->next_id.fetch_add(request.choice_count);
  impl_->histograms.tokens_max.observe(static_cast<double>(request.tokens_max));
  impl_->histograms.choice_count.observe(request.choice_count);
  // Known to the board first: the engine's thread may be done with it before push() returns.
  impl_->board.arrived({.id = id,
                        .prompt_tokens = std::ssize(request.prompt),
                        .tokens_max = request.tokens_max,
                        .choice_count = request.choice_count,
                        .priority = request.priority,
                        .tenant = request.tenant,
                        .adapter = request.adapter},
                       now_ns);
  Status status = impl_->inbox.push({id, std::move(request), std::move(sink), now_ns},
                                    impl_->retry_after_seconds());
  if (status) return id;
  impl_->board.refused(id);
  return tl::unexpected(Refusal{std::move(status.error())});
}

void Engine::cancel(RequestId id) { impl_->inbox.cancel(id); }

Status Engine::change_plan(const plan::ServeSettings& settings, plan::PlannedLoad planned) {
  if (!impl_->options.planned_load) {
    return fail(Code::kInvalidArgument, "the engine has no plan that another could replace");
  }
  JIGE_DO(plan::check_settings(settings, "another plan"));
  JIGE_DO(check_range("requests of a batch of another plan", settings.batch_requests_max, 1,
                      concurrent_requests_max(impl_->options)));
  PlanChange change{settings, std::move(planned)};
  const model::InferenceSizes& sizes = impl_->model.sizes();
  if (settings.policy == plan::ServePolicy::kChunked) {
    JIGE_DO(check_range("tokens of a batch of another plan", settings.batch_tokens_max, 1,
                        sizes.batch_tokens_max));
  } else {  // of guesses alone
    change.settings.batch_tokens_max = scheduler_options(impl_->options, sizes).batch_tokens_max;
  }
  impl_->inbox.change(std::move(change));
  return {};
}

int64_t Engine::context_max() const { return impl_->context_max(); }
const EngineOptions& Engine::options() const { return impl_->options; }
plan::ServeSettings Engine::settings() const { return impl_->board.settings(); }
const text::Tokenizer& Engine::tokenizer() const { return impl_->tokenizer; }

EngineStatus Engine::status(bool with_requests) const {
  // Who waits before who runs: one that begins meanwhile is counted twice, but never missed.
  const int64_t waiting_requests = impl_->inbox.waiting_requests();
  const int64_t waiting_prompt_tokens = impl_->inbox.waiting_prompt_tokens();
  EngineStatus status = impl_->board.snapshot(with_requests, RealClock().now_ns());
  status.accepting = impl_->inbox.open();
  status.waiting_requests = waiting_requests;
  status.waiting_prompt_tokens = waiting_prompt_tokens;
  status.retry_after_seconds = retry_after_seconds();
  return status;
}

void Engine::forget_adapter(int32_t number) { impl_->board.forget_adapter(number); }
const EngineHistograms& Engine::histograms() const { return impl_->histograms; }
double Engine::retry_after_seconds() const { return impl_->retry_after_seconds(); }
void Engine::begin_drain() { impl_->inbox.close(); }

bool Engine::drain(double seconds_max) {
  begin_drain();
  return impl_->board.wait_idle(std::clamp(seconds_max, 0.0, kWaitSecondsMax));
}

void Engine::stop() { impl_->stop(); }

}  // namespace jige::serve
