// Engine: many requests on one model, iteration by iteration.
//
//   JIGE_TRY(auto engine, Engine::create(model, tokenizer, {.batch_requests_max = 32}));
//   JIGE_DO(engine->admission_check(body.size()));             // before the text is tokenised
//   JIGE_TRY(const RequestId id, engine->submit({.prompt = ids, .tokens_max = 100}, sink));
//   …sink gets the answer…
//   engine->drain(60);
//
// One thread takes requests and cancellations from a queue, asks plan::ServeScheduler for the next
// batch, runs it, samples, and tells the sinks (engine_request.h says in what order). Where layers
// are on other machines (divided_model.h) several batches may be in flight: while the rows of one
// are there, this machine computes another.
//
// A model for embeddings gives vectors of prompts instead of answers (EngineRequest::vector). Their
// tenants with the least to do go first, and half of an iteration is for who came first, unless
// fair_share orders them (plan/serve_scheduler.h).
//
// Contracts:
//   (1) bits: an answer depends on its request and the model only, never on neighbours, chunks,
//       cached prefixes, drafts, preemption or cancellation of others
//   (2) faults stay inside: a request whose logits or text cannot be used fails alone; when a
//       forward fails, the requests of that batch fail and the others go on. Where it failed
//       because layers on another machine were lost, requests wait for them and go on when they are
//       back (lasting_layers.h), or all fail
//   (3) cancel() gives the request's cache blocks back before the next forward begins or, with
//       several batches in flight, when the request's own has ended
//   (4) the queue is bounded, and a refusal names its reason and costs nothing
// Settings may change while it serves: change_plan() brings others, which count from the next
// border of the policy's cycle on (plan/serve_scheduler.h).
//
// Threads: submit, cancel, admission_check, change_plan, settings, status, forget_adapter,
// histograms and drain may be called from any thread; sinks may call them too, but for drain().
// Model and tokenizer must outlive the engine; the model is the engine's alone while it lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/threads.h"
#include "model/inference.h"
#include "plan/serve_drift.h"
#include "plan/serve_settings.h"
#include "serve/draft_model.h"
#include "serve/draft_options.h"
#include "serve/engine_request.h"
#include "serve/engine_status.h"
#include "text/tokenizer.h"

namespace jige::serve {

// Faults to be injected by tests; on the engine's thread.
struct EngineFaults {
  // Before each iteration, from 1 on; an error makes its forward fail.
  std::function<Status(int64_t iteration)> before_forward;
  // May spoil the logits that a choice is about to be sampled from.
  std::function<void(RequestId request, int32_t choice, std::span<float> logits)> on_logits;
};

struct EngineOptions {
  plan::ServePolicy policy = plan::ServePolicy::kChunked;
  plan::Admission admission = plan::Admission::kReserve;
  int32_t batch_requests_max = 64;
  int32_t batch_tokens_max = 0;   // of an iteration, chunked policy; 0: what one forward takes
  int32_t round_prompts = 8;      // rounds policy: prompts that begin together
  int32_t round_steps = 16;       // rounds policy: iterations of next tokens behind them
  int32_t batches_in_flight = 1;  // Orca's n_workers; the model's forwards_max at most
  // For so many requests one batch: with fewer next tokens in each, steps are not shorter.
  int32_t in_flight_requests_min = 8;
  int32_t preemptions_max = 3;  // of one request, optimistic admission
  bool fair_share = false;      // among equals in priority, the tenant served least goes first
  // With a model that has states create() turns off the prefix cache without kept states, drafts
  // where layers are elsewhere and, with several batches in flight, drafts and kept states.
  bool prefix_cache = true;
  // Of the model's states so many hold what prompts begin with (plan/serve_scheduler.h); the others
  // are of requests. Of a model without states, or without the prefix cache, it becomes 0.
  int32_t kept_state_count = 0;
  DraftOptions drafts;  // of tokens that may follow, verified by the model: the same answers sooner
  // Guesses, too; it must outlive the engine, and is the engine's alone while that lives.
  DraftModel* draft_model = nullptr;

  int32_t choices_max = 16;             // of one request
  int64_t waiting_requests_max = 1024;  // not begun yet
  int64_t waiting_prompt_tokens_max = int64_t{1} << 20;
  double stall_seconds_max = 30;  // without a completed iteration while work exists: unhealthy

  // Draws tokens of different answers at once; null: on the engine's thread. It should be the
  // device's own, which is at rest then, and must outlive the engine.
  ThreadTeam* sampling_team = nullptr;

  // What the settings were planned for: whether requests are still like it is told by status(), and
  // by a warning when they cease to be.
  std::optional<plan::PlannedLoad> planned_load;
  plan::DriftOptions drift;
  // Answers at once that settings of a later plan may have, of which there is room for guesses; 0:
  // no more than these, and nobody plans again but by hand.
  int32_t replan_requests_max = 0;

  // Every scheduling event as a line of JSON (event_log.h), token ids among them; empty: none.
  std::string event_log_path;
  EngineFaults faults;
};

// Fails with kInvalidArgument on options out of range, naming field and value. create() asks too,
// and fails with kInvalidArgument where the kept states leave requests none, and kUnsupported on
// more batches in flight than the model may have forwards under way.
Status validate(const EngineOptions& options);

// Answers at once, whatever plan is in force.
int32_t concurrent_requests_max(const EngineOptions& options);
// How such an engine schedules a model of these sizes.
plan::ServeSchedulerOptions scheduler_options(const EngineOptions& options,
                                              const model::InferenceSizes& sizes);

class Engine {
 public:
  // Starts the thread. Fails as validate() does, and with kIo where the event log cannot be
  // written.
  static Result<std::unique_ptr<Engine>> create(model::InferenceModel& model,
                                                const text::Tokenizer& tokenizer,
                                                EngineOptions options = {});
  // Stops as stop() does.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Whether a prompt of this many bytes would be taken now: worth asking before it is tokenised.
  // Fails with kUnavailable (draining, stopped) or kExhausted (the queue is full; the message and
  // retry_after_seconds() say when to come again).
  Status admission_check(int64_t prompt_byte_count) const;
  // Queues a request; the sink gets its events. Fails as admission_check does, and with
  // kInvalidArgument on what could never run, with the field; the sink is not called then.
  tl::expected<RequestId, Refusal> submit(EngineRequest request, std::shared_ptr<RequestSink> sink);
  // Ends a request before its time; without effect on ids that are unknown or over.
  void cancel(RequestId id);
  // Other settings, and what they were planned for. Returns at once; settings() tells them when
  // they are in force. Fails with kInvalidArgument on settings that the engine has no room for,
  // naming field and value, and on one that has no plan.
  Status change_plan(const plan::ServeSettings& settings, plan::PlannedLoad planned);

  // Tokens that a prompt and its answer may have together.
  int64_t context_max() const;
  const EngineOptions& options() const;
  // How it schedules now, with what the options leave to the model's sizes.
  plan::ServeSettings settings() const;
  const text::Tokenizer& tokenizer() const;

  // `with_requests` lists the live requests too.
  EngineStatus status(bool with_requests = false) const;
  // The adapter is gone: its requests are counted no more.
  void forget_adapter(int32_t number);
  const EngineHistograms& histograms() const;
  double retry_after_seconds() const;

  // From now on submit() refuses with kUnavailable; what was taken is finished. Returns at once.
  void begin_drain();
  // begin_drain, then waits until nothing is left: true, or false when the time is up.
  bool drain(double seconds_max);
  // Refuses new requests, ends all others as cancelled, and joins the thread. From a sink it
  // returns at once and the rest follows. Again: no effect.
  void stop();

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace jige::serve
