#include "cli/serve_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "cli/embedding_folder.h"
#include "cli/flags.h"
#include "cli/image_model.h"
#include "cli/profiled_subject.h"
#include "cli/serve_plan_view.h"
#include "formats/generation_config.h"
#include "formats/image_config.h"

namespace jige::cli {
namespace {

constexpr int64_t kAdapterRoomsDefault = 4;
constexpr int64_t kAdapterRankDefault = 16;
constexpr int64_t kRequestsWaitingMax = 1024;
constexpr int64_t kTextsWaitingMax = 16384;
constexpr int64_t kBodyWithImages = int64_t{32} << 20;

void declare_served(Flags& flags, ServeFlags& serve) {
  flags.section("Address and keys");
  serve.declare_address(flags);
  flags.toggle("--no-page", serve.no_page, "show no page to chat in at http://HOST:PORT/");
  flags.text("--served-model-name NAME", serve.served_name,
             "what clients call the model; without it the folder's name");
  flags.texts("--adapter NAME=FOLDER", serve.adapters,
              "a LoRA adapter, or that of a run, served beside the model to requests for the model "
              "NAME; may be given several times");
  flags.text("--adapter-root DIR", serve.adapter_root,
             "let clients load and unload the LoRA adapters in this folder while it serves, with "
             "POST /v1/load_lora_adapter and /v1/unload_lora_adapter; nothing outside it is read");
  flags.integer("--max-adapters N", serve.adapters_max, {.min = 0, .max = 4096},
                "with --adapter-root: how many may be loaded at once, besides those of --adapter; "
                "their memory is taken at the start; 0: 4");
  flags.integer("--max-adapter-rank R", serve.adapter_rank_max, {.min = 0, .max = 4096},
                "with --adapter-root: the largest rank they may have; 0: 16");
}

void declare_scheduling(Flags& flags, ServeFlags& serve) {
  flags.section("Scheduling and memory");
  flags.text("--plan FILE", serve.plan,
             "policy and settings of `jige plan serve -o FILE`, in place of --policy, --max-batch, "
             "--batch-tokens and those of rounds");
  flags.toggle("--replan", serve.replan,
               "plan again in the background, for the requests that come, when they are no longer "
               "those of --plan, and go on with the settings found where they are better; takes "
               "memory for the largest settings that the plan may choose");
  flags.number("--replan-seconds S", serve.replan_seconds, {.min = 0, .max = 1e6},
               "with --replan: never sooner than this after the last time");
  flags.text(
      "--replan-out DIR", serve.replan_out,
      "with --replan: write the plans that are switched to into this folder, as plan-1.json, "
      "plan-2.json and so on behind what is there");
  flags.choice("--policy NAME", serve.policy, {"chunked", "orca", "rounds", "static"},
               "chunked: running answers first, then pieces of prompts; orca: whole prompts, first "
               "come first served by iteration; rounds: some whole prompts, then iterations of "
               "next tokens alone, and again; static: batch after batch, for comparison");
  serve.rounds.declare(flags);
  flags.choice("--admission NAME", serve.admission, {"reserve", "optimistic"},
               "reserve: an answer begins when its longest form fits; optimistic: when its prompt "
               "does, and is computed again where memory gets short");
  flags.integer("--max-batch N", serve.batch_requests, {.min = 1, .max = 4096},
                "answers that are made at once at most, in each batch at work");
  flags.integer(
      "--in-flight N", serve.in_flight, {.min = 1, .max = 64},
      "batches at work at once (Orca's n_workers), of a model on several machines or GPUs: while "
      "the rows of one are elsewhere, this machine computes another; as many as machines and GPUs "
      "hold layers unless given, but 1 with recurrent layers; fewer while there are not 8 "
      "answers for each; on one machine or GPU 1");
  flags.integer("--batch-tokens N", serve.batch_tokens, {.min = 16, .max = 1 << 16},
                "tokens of one iteration; fewer: steadier answers, more: faster prompts");
  flags.integer("--kv-tokens N", serve.kv_tokens, {.min = 0, .max = int64_t{1} << 30},
                "tokens the key/value cache holds; 0: what --memory-limit leaves; without it 16 "
                "contexts, or what three quarters of the machine's memory leave");
  flags.integer("--states N", serve.states, {.min = 0, .max = 4096},
                "answers in the making at once of a model with recurrent layers, each with states "
                "of its own; so many as no answer has at the moment may guess ahead (--speculate); "
                "0: 16, or two for each of --max-batch if that is less");
  flags.integer("--kept-states N", serve.kept_states, {.min = 0, .max = 4096},
                "further states of such a model, of what prompts begin with, for later prompts and "
                "the next turns of chats; 0, or with --no-prefix-cache or --embeddings: none");
  flags.bytes("--constraint-memory SIZE", serve.constraint_bytes,
              "what constrained answers may take together, part of --memory-limit; 64 MiB without "
              "it");
  flags.toggle("--no-prefix-cache", serve.no_prefix_cache,
               "do not keep what prompts begin with for later prompts");
  flags.toggle("--fair-share", serve.fair_share, "the user served least goes first");
  serve.speculation.declare(flags);
  flags.text("--event-log FILE", serve.event_log,
             "write every scheduling event, token ids among them, for replay");
}

void declare_answers(Flags& flags, ServeFlags& serve) {
  flags.section("Answers");
  flags.choice("--tool-calls FORMAT", serve.tool_calls,
               {"auto", "hermes", "mistral", "llama", "harmony", "off"},
               "how the model writes calls of tools; auto: as its chat template does");
  serve.reasoning.declare(flags);
  flags.toggle("--no-images", serve.no_images,
               "read no images, where the model could: saves the memory that it takes");
  declare_image_pixels(flags, serve.image_pixels);
  flags.bytes("--image-memory SIZE", serve.images_bytes,
              "what images may take as rows for the model, of requests under way and of later "
              "turns of chats, part of --memory-limit; 512 MiB without it, or less for a small "
              "model");
}

void declare_embeddings(Flags& flags, ServeFlags& serve) {
  flags.section("Embeddings");
  flags.toggle("--embeddings", serve.embeddings,
               "serve POST /v1/embeddings instead of answers, whatever the model; folders with a "
               "modules.json are served so without it");
  flags.toggle("--rerank", serve.rerank,
               "serve POST /v1/rerank instead of answers, as Qwen3-Reranker needs; folders of a "
               "class for sequence classification are served so without it");
  declare_pooling(flags, serve.pooling);
}

void declare_limits(Flags& flags, ServeFlags& serve) {
  flags.section("Limits");
  flags.integer("--queue-requests N", serve.queue_requests, {.min = 0, .max = 1 << 24},
                "requests, or texts for embeddings or reranking, that may wait; more get 429; 0: "
                "1024 requests, "
                "16384 texts");
  flags.integer("--queue-tokens N", serve.queue_tokens, {.min = 1, .max = int64_t{1} << 40},
                "prompt tokens that may wait; more get 429");
  flags.integer("--max-n N", serve.choices_max, {.min = 1, .max = 256},
                "answers one request may ask for");
  flags.integer("--default-max-tokens N", serve.tokens_default, {.min = 0, .max = 1 << 30},
                "length of a chat answer where the request names none; 0: what the folder says, or "
                "the rest of the context");
  serve.declare_connections(flags);
  flags.number("--stall-seconds S", serve.stall_seconds, {.max = 1e6, .above_min = true},
               "/health fails when work exists and no iteration completes within this");
  flags.toggle("--measure-peaks", serve.measure_peaks,
               "measure this machine before loading (2 s), so that /metrics can show shares of it");
}

}  // namespace

void ServeFlags::declare(Flags& flags) {
  declare_served(flags, *this);
  declare_scheduling(flags, *this);
  declare_answers(flags, *this);
  declare_embeddings(flags, *this);
  declare_limits(flags, *this);
}

Status ServeFlags::read_plan(const Flags& flags) {
  if (!replan) {
    JIGE_DO(flags.refuse({"--replan-seconds", "--replan-out"}, "is of --replan; add that, too"));
  }
  if (plan.empty()) {
    return flags.refuse({"--replan"},
                        "replaces a plan by another; add --plan, which names the first");
  }
  JIGE_DO(flags.refuse(
      {"--policy", "--round-prompts", "--round-steps", "--max-batch", "--batch-tokens"},
      "is what --plan says; leave one of them out"));
  JIGE_TRY(planned_, sim::load_serve_plan(plan));
  const sim::ServeSettings& settings = planned_->settings;
  policy = plan::policy_name(settings.policy);
  batch_requests = settings.batch_requests_max;
  if (settings.policy == plan::ServePolicy::kChunked) batch_tokens = settings.batch_tokens_max;
  rounds = {.prompts = settings.round_prompts, .steps = settings.round_steps};
  if (replan) JIGE_DO(make_room_for_plans());
  log_info("{}: {}; planned for {:.3g} requests a second, within {:.3g} s at the 99th percentile",
           plan, sim::settings_text(settings), planned_->prediction.requests_per_s,
           planned_->prediction.e2e_s.p99);
  return {};
}

Status ServeFlags::make_room_for_plans() {
  if (!planned_->search) {
    return fail(Code::kInvalidArgument,
                "{}: does not say what it was searched among, which --replan needs; make it again "
                "with `jige plan serve -o`, or leave --replan out",
                plan);
  }
  batch_requests = std::max<int64_t>(batch_requests, planned_->search->batch_requests_max);
  batch_tokens = planned_->settings.policy == plan::ServePolicy::kChunked
                     ? std::max<int64_t>(batch_tokens, planned_->search->batch_tokens_max)
                     : planned_->search->batch_tokens_max;
  if (replan_out.empty()) return {};
  return make_folders(replan_out);
}

std::unique_ptr<ServeReplanner> ServeFlags::make_replanner(serve::Engine& engine) const {
  if (!replan) return nullptr;
  return std::make_unique<ServeReplanner>(
      engine, *planned_, ServeReplanOptions{.pause_s = replan_seconds, .folder = replan_out});
}

Status ServeFlags::check_in_flight(bool divided) const {
  const int64_t batches = in_flight.value_or(1);
  if (divided || batches == 1) return {};
  return fail(Code::kUnsupported,
              "--in-flight {}: on one machine another batch would only wait for the first; divide "
              "the model among several (--layers-on) or among GPUs (--device cuda:0,cuda:1), or "
              "see what a pipeline would do by `jige simulate serve --in-flight {}`",
              batches, batches);
}

Status ServeFlags::check_plan(const std::string& folder) const {
  if (!planned_ || !planned_->profiled) return {};
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(folder));
  const sim::ProfiledModel& then = planned_->profiled->model;
  const sim::ProfiledModel now = profiled_shape(config);
  if (sim::same_shape(then, now)) return {};
  return fail(
      Code::kInvalidArgument,
      "{}: was made for {} ({} parameters, {} layers of width {}, {} tokens), and {} has {}, {} of "
      "{}, {}; plan for this one by `jige profile serve {}`, or give {} instead of --plan",
      plan, then.name, then.parameters, then.layers, then.width, then.vocabulary, folder,
      now.parameters, now.layers, now.width, now.vocabulary, folder,
      settings_flags(planned_->settings));
}

void ServeFlags::compare_with_plan(const sim::ProfiledSubject& now, int64_t cached_tokens) const {
  if (!planned_) return;
  if (cached_tokens < planned_->kv_tokens) {
    log_warn("the cache holds {} tokens and {} was made for {}; plan again with --kv-tokens {}",
             cached_tokens, plan, planned_->kv_tokens, cached_tokens);
  }
  if (!planned_->profiled) return;
  const std::vector<std::string> others = sim::differences(*planned_->profiled, now);
  if (others.empty()) return;
  log_warn(
      "{} rests on other times of an iteration than it will take here ({}): what it predicts may "
      "not come true; profile and plan again",
      plan, fmt::join(others, "; "));
}

int64_t ServeFlags::answer_states() const {
  if (states > 0) return states;
  const int64_t spares = speculation.speculate == "off" ? 0 : batch_requests;
  return std::min(kStatesUsual, batch_requests + spares);
}

Result<serve::EngineOptions> ServeFlags::engine_options() const {
  serve::EngineOptions options;
  options.policy = plan::find_policy(policy).value_or(options.policy);
  options.admission =
      admission == "optimistic" ? plan::Admission::kOptimistic : plan::Admission::kReserve;
  options.batch_requests_max = static_cast<int32_t>(batch_requests);
  rounds.set(options);
  options.batches_in_flight = static_cast<int32_t>(in_flight.value_or(1));
  options.fair_share = fair_share;
  options.prefix_cache = !no_prefix_cache;
  options.kept_state_count = no_prefix_cache ? 0 : static_cast<int32_t>(kept_states);
  options.choices_max = static_cast<int32_t>(choices_max);
  options.waiting_requests_max = queue_requests > 0 ? queue_requests : kRequestsWaitingMax;
  options.waiting_prompt_tokens_max = queue_tokens;
  options.stall_seconds_max = stall_seconds;
  options.event_log_path = event_log;
  if (planned_) options.planned_load = planned_->lengths;
  if (planned_ && replan) {
    // The flags are what there is room for.
    plan::apply_settings(planned_->settings, options);
    if (options.policy != plan::ServePolicy::kChunked) options.batch_tokens_max = 0;
    options.replan_requests_max = static_cast<int32_t>(batch_requests);
  }
  JIGE_TRY(options.drafts, speculation.read());
  return options;
}

Result<serve::EngineOptions> ServeFlags::embedding_engine_options() const {
  JIGE_TRY(serve::EngineOptions options, engine_options());
  if (queue_requests == 0) options.waiting_requests_max = kTextsWaitingMax;
  options.drafts = {.tokens_max = 0};
  options.kept_state_count = 0;  // texts have no next turns
  options.batch_requests_max = static_cast<int32_t>(batch_tokens);
  return options;
}

api::ToolFormat ServeFlags::tool_format(const text::ChatTemplate& chat) const {
  const auto named = api::find_tool_format(tool_calls);
  return named ? *named : api::tool_format_of(chat);
}

Status ServeFlags::make_room_for_images(const Flags& flags, const std::string& folder,
                                        api::ServedKind kind) {
  const bool reads_none = no_images || kind != api::ServedKind::kAnswers;
  if (reads_none || flags.given("--max-body")) return {};
  JIGE_TRY(const auto config, formats::load_image_config(folder));
  if (config) body_bytes = std::max(body_bytes, kBodyWithImages);
  return {};
}

Status ServeFlags::add_answers(const std::string& folder, api::ServedModel& served) const {
  JIGE_TRY(const formats::GenerationConfig config, formats::load_generation_config(folder));
  served.defaults = {
      .temperature = config.do_sample.value_or(true) ? config.temperature.value_or(1) : 0,
      .top_k = config.top_k.value_or(0),
      .top_p = config.top_p.value_or(1),
      .min_p = config.min_p.value_or(0),
      .repetition_penalty = config.repetition_penalty.value_or(1)};
  served.tokens_default = config.max_new_tokens;
  if (tokens_default > 0) served.tokens_default = tokens_default;
  const std::string& source = served.tokenizer.chat_template();
  if (source.empty()) return {};
  JIGE_TRY(served.chat_template, text::ChatTemplate::parse(source, folder + ": chat template"));
  served.tool_format = tool_format(*served.chat_template);
  served.has_reasoning = reasoning.is_expected(&*served.chat_template);
  return {};
}

Result<api::ServedKind> ServeFlags::kind_of(const std::string& folder) const {
  if (embeddings && rerank) {
    return fail(Code::kInvalidArgument,
                "--embeddings and --rerank: a server makes vectors or judges; give one of them");
  }
  if (rerank) return api::ServedKind::kPairs;
  return embeddings ? api::ServedKind::kEmbeddings : folder_kind(folder);
}

Status ServeFlags::check_use(const Flags& flags, const std::string& folder,
                             api::ServedKind kind) const {
  JIGE_DO(RoundFlags::check_use(flags, policy == "rounds", "--policy"));
  if (kind != api::ServedKind::kEmbeddings) {
    JIGE_DO(flags.refuse({"--pooling"},
                         "is about vectors of texts; give --embeddings too, or leave "
                         "it out"));
  }
  if (kind == api::ServedKind::kAnswers) return {};
  return flags.refuse(
      {"--draft-model", "--speculate", "--tool-calls", "--reasoning", "--max-n",
       "--default-max-tokens", "--max-batch", "--plan", "--constraint-memory", "--kept-states",
       "--no-images", "--image-memory", "--image-pixels"},
      fmt::format("is about answers, and {} gives {}; leave it out", folder,
                  kind == api::ServedKind::kPairs ? "scores of documents" : "vectors of texts"));
}

Status ServeFlags::add_adapter_rooms(model::InferenceOptions& options) const {
  if (!adapter_root.empty()) {
    options.adapter_rooms = adapters_max > 0 ? adapters_max : kAdapterRoomsDefault;
    options.adapter_rank_max = adapter_rank_max > 0 ? adapter_rank_max : kAdapterRankDefault;
    return {};
  }
  if (adapters_max == 0 && adapter_rank_max == 0) return {};
  return fail(Code::kInvalidArgument,
              "{} is about adapters that are loaded while the server runs; add --adapter-root, "
              "which names the folder that they are in",
              adapters_max > 0 ? "--max-adapters" : "--max-adapter-rank");
}

api::RequestLimits ServeFlags::request_limits() const {
  api::RequestLimits limits;
  limits.choices_max = static_cast<int32_t>(choices_max);
  limits.prompts_max = std::max(limits.prompts_max, limits.choices_max);
  return limits;
}

}  // namespace jige::cli
