// jige serve: a model for many users at once, with the OpenAI API.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "api/adapter_loader.h"
#include "api/service.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/adapter_flags.h"
#include "cli/adapter_report.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/embedding_folder.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/layer_flags.h"
#include "cli/loaded_model.h"
#include "cli/machine_rates.h"
#include "cli/output.h"
#include "cli/page_address.h"
#include "cli/profiled_subject.h"
#include "cli/serve_flags.h"
#include "cli/serve_images.h"
#include "cli/served_name.h"
#include "serve/engine_drafts.h"
#include "serve/engine_memory.h"
#include "train/process_memory.h"

namespace jige::cli {
namespace {

constexpr double kContextsDefault = 16;      // that fit into the cache where nobody says how large
constexpr double kContextsOfEmbeddings = 4;  // likewise: texts are gone when they have run
constexpr double kFailSeconds = 2;           // for clients to be told

class ServeCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Serves a model to many users at once over HTTP, with the OpenAI API (completions, chat "
        "completions, responses) and the messages of the Anthropic API, streamed or whole, and a "
        "page to chat in, for a browser; an "
        "embedding model with the embeddings of the OpenAI API, a reranker with /v1/rerank. "
        "SIGTERM, Ctrl-C or the end of the "
        "terminal: new requests are refused and those under way are finished; a second signal ends "
        "the server at once. Exit codes: 0 all was finished, 130 requests were cut off; others as "
        "in `jige --help`.");
    model_.declare_folder(flags);
    serve_.declare(flags);
    model_.declare(flags);
    model_.layers_on.declare_wait(flags);
    output_.declare(flags, "print a JSON object when it listens, when it is ready, and at the end");
    flags.example("jige serve models/tiny");
    flags.example("jige serve models/llama-3.2-1b --port 8080 --memory-limit 6GiB");
    flags.example("jige serve models/tiny --plan plan.json --replan --replan-out plans");
    flags.example("jige serve models/tiny --adapter poet=runs/poet --adapter coder=runs/coder");
    flags.example("jige serve models/qwen3-embedding-0.6b");
    flags.example("JIGE_API_KEY=secret-key jige serve runs/tuned --host 0.0.0.0");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    JIGE_DO(serve_.read_plan(*flags_));
    JIGE_TRY(engine_options_, serve_.engine_options());
    JIGE_DO(serve::validate(engine_options_));
    const InterruptScope interrupts;
    raise_descriptor_limit();
    JIGE_TRY(folder_, find_model_folder(model_.folder));
    JIGE_TRY(kind_, serve_.kind_of(folder_));
    JIGE_DO(serve_.check_use(*flags_, folder_, kind_));
    JIGE_DO(serve_.check_plan(folder_));
    JIGE_DO(serve_.make_room_for_images(*flags_, folder_, kind_));
    JIGE_DO(model_.layers_on.check(model_.device));
    JIGE_DO(serve_.check_in_flight(is_divided()));
    if (is_divided()) JIGE_DO(serve_.speculation.check_divided(folder_));
    if (kind_ == api::ServedKind::kEmbeddings) {
      JIGE_TRY(embedding_, read_embedding_config(folder_, serve_.pooling));
    }
    if (makes_vectors()) {
      JIGE_TRY(engine_options_, serve_.embedding_engine_options());
    }
    name_ = serve_.served_name.empty() ? folder_name(folder_) : serve_.served_name;
    JIGE_TRY(adapters_, read_named_adapters(serve_.adapters, name_));
    JIGE_TRY(api::ApiKeys keys, serve_.api_keys());
    JIGE_TRY(api::HttpServerOptions http, serve_.http_options(keys, !serve_.no_page));
    serve_.warn_if_open(keys, http);
    api::Service service({.version = kVersion,
                          .model_name = name_,
                          .keys = std::move(keys),
                          .limits = serve_.request_limits(),
                          .page = !serve_.no_page});
    http.event_pause_ms = kEventPauseMs;
    http.alive = [&service] { return service.answers_go_on(); };
    JIGE_TRY(const auto server, api::HttpServer::listen(http, service.handler()));
    service.set_http_stats([&server = *server] { return server.stats(); });
    tell_address(*server);
    JIGE_DO(load(service));
    const Status served = serve_until_stopped(service, *server);
    if (replanner_) replanner_->stop();
    engine_->stop();  // what is left ends as "abort", which the server may still send
    service.stop();
    server->stop(kHttpFlushMs);
    return served;
  }

 private:
  bool is_divided() const { return model_.layers_on.divide(model_.device); }

  void tell_address(const api::HttpServer& server) {
    const std::string page = page_address(server.address(), serve_.host);
    if (output_.json) {
      print_json(Json{{"event", "listening"},
                      {"address", server.address()},
                      {"port", server.port()},
                      {"page", serve_.no_page ? Json() : Json(page)}});
    } else {
      print_text(fmt::format("listening on {}\n", server.address()));
      if (!serve_.no_page) print_text(fmt::format("to chat in a browser open {}\n", page));
    }
  }

  Result<model::InferenceOptions> inference_options() {
    JIGE_TRY(const std::optional<DType> compute, read_compute_dtype(model_.dtype));
    model::InferenceOptions options{
        .compute = compute,
        .kv_dtype = read_kv_cache(model_.kv_cache),
        .format = read_weight_format(model_.quantize),
        .context_max = model_.context,
        .state_count = serve_.answer_states() + engine_options_.kept_state_count,
        .batch_tokens_max = std::max(serve_.batch_tokens, images_.rows_together()),
        .logit_rows_max = std::min(rows_read(), serve_.batch_tokens),
        .embeds = makes_vectors(),
        .adapters = adapters_,
        .memory_bytes_max = model_.device.arena_bytes_max()};
    JIGE_DO(serve_.add_adapter_rooms(options));
    JIGE_TRY(serve::LayerBudget budget, model_.layers.budget(model_.device));
    budget.draft_model = draft_plan_ ? &*draft_plan_ : nullptr;
    options.memory_bytes_max = std::min(options.memory_bytes_max, budget.device_bytes);
    if (serve_.kv_tokens > 0) {
      options.kv_block_count = (serve_.kv_tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
    }
    // Where others hold layers, what they have room for counts, too.
    if (is_divided()) return options;
    if (serve_.kv_tokens > 0) {
      return serve::fit_layers(folder_, options, budget, model_.device.kind());
    }
    const int64_t limit_bytes = model_.layers.device_memory_bytes > 0
                                    ? options.memory_bytes_max
                                    : model_.device.memory_limit_bytes;
    JIGE_TRY(const int64_t memory_bytes, model_.device.memory_bytes());
    const double contexts = makes_vectors() ? kContextsOfEmbeddings : kContextsDefault;
    JIGE_TRY(const serve::EngineMemory memory,
             serve::plan_engine_memory(
                 folder_, options, limit_bytes > 0 ? limit_bytes : memory_bytes / 4 * 3,
                 {.drafts = engine_options_.drafts,
                  .draft_sequences = serve_.batch_requests,
                  .draft_model = budget.draft_model,
                  .constraints_bytes = constraints_bytes(),
                  .images_bytes = images_.memory_bytes()},
                 model_.device.kind(), {.budget = budget, .contexts_max = contexts}));
    memory.choose(options);
    if (limit_bytes == 0 && memory.full_contexts > contexts) {
      options.kv_block_count = static_cast<int64_t>(static_cast<double>(memory.kv_block_count) /
                                                    memory.full_contexts * contexts);
    }
    return options;
  }

  // Rows of a step that are read at once: one for every answer, or for one with a draft.
  int64_t rows_read() const {
    if (makes_vectors()) return kEmbeddingRows;
    return std::max<int64_t>(serve_.batch_requests, 1 + engine_options_.drafts.tokens_max);
  }

  Status load(api::Service& service) {
    const StopWatch watch;
    JIGE_TRY(devices_, model_.device.make());
    if (serve_.measure_peaks) JIGE_DO(measure_peaks(service));
    JIGE_TRY(text::Tokenizer tokenizer, text::Tokenizer::load(folder_));
    if (!makes_vectors()) {
      constraints_ = std::make_shared<grammar::ConstraintCompiler>(
          tokenizer, static_cast<size_t>(serve_.constraint_bytes));
    }
    if (kind_ == api::ServedKind::kPairs) {
      JIGE_TRY(pairs_, formats::load_pair_config(folder_, tokenizer));
    }
    JIGE_TRY(draft_plan_, serve_.speculation.plan_draft_model(
                              tokenizer, {.context_max = model_.context,
                                          .sequences = serve_.batch_requests,
                                          .batch_tokens_max = serve_.batch_tokens,
                                          .prefix_cache = !serve_.no_prefix_cache,
                                          .device = model_.device.kind()}));
    if (!makes_vectors() && !serve_.no_images) {
      JIGE_DO(images_.load(
          folder_, tokenizer,
          {.threads = static_cast<int>(model_.device.threads),
           .memory_bytes_max = model_.device.arena_bytes_max(),
           .rows_bytes_max = serve_.images_bytes,
           .pixels_max = serve_.image_pixels,
           .context_max = model_.context > 0 ? model_.context : model::kContextDefaultMax,
           .on_processors = model_.device.kind() == DeviceKind::kCpu && !is_divided()}));
    }
    JIGE_TRY(const model::InferenceOptions options, inference_options());
    JIGE_DO(load_model(options));
    if (draft_plan_) {
      JIGE_TRY(draft_model_,
               serve::DraftModel::load(*draft_plan_, *loaded_, model_.device.arena_bytes_max()));
    }
    tokenizer_.emplace(std::move(tokenizer));
    if (loaded_->sizes().state_count > 0 && is_divided()) engine_options_.drafts.tokens_max = 0;
    JIGE_DO(check_limit());
    engine_options_.sampling_team = &devices_.team();
    engine_options_.draft_model = draft_model_.get();
    JIGE_TRY(engine_, serve::Engine::create(*loaded_, *tokenizer_, engine_options_));
    serve_.compare_with_plan(profiled_subject(devices_, *loaded_, model_.folder),
                             loaded_->sizes().kv_block_count * ops::kKvBlockTokens);
    replanner_ = serve_.make_replanner(*engine_);
    JIGE_TRY(api::ServedModel served, served_model());
    const int64_t text_tokens = served.pairs       ? served.pairs->tokens_max
                                : served.embedding ? served.embedding->tokens_max
                                                   : engine_->context_max();
    service.set_model(std::move(served));
    tell_ready(watch.seconds(), text_tokens);
    return {};
  }

  Status load_model(const model::InferenceOptions& options) {
    if (!is_divided()) {
      JIGE_TRY(loaded_, model::InferenceModel::load(folder_, devices_.compute(), options));
      tell_streamed_layers(*loaded_);
      return {};
    }
    const double contexts = makes_vectors() ? kContextsOfEmbeddings : kContextsDefault;
    JIGE_TRY(serve::DividedModel divided,
             model_.layers_on.load(folder_, devices_, model_.device, model_.layers, options,
                                   {.contexts_wanted = static_cast<int64_t>(contexts),
                                    .forwards_max = serve_.in_flight.value_or(0),
                                    .restore_s = model_.layers_on.restore_s(),
                                    .draft_model = draft_plan_ ? &*draft_plan_ : nullptr}));
    loaded_ = std::move(divided.model);
    layers_ = divided.beyond;
    engine_options_.batches_in_flight = static_cast<int32_t>(loaded_->sizes().forwards_max);
    if (engine_options_.batches_in_flight > 1) {
      log_info("{} batches at work at once (--in-flight)", engine_options_.batches_in_flight);
    }
    return {};
  }

  int64_t drafts_bytes() const {
    return serve::EngineDrafts::bytes_for(engine_options_.drafts, serve_.batch_requests,
                                          loaded_->context_max());
  }

  int64_t constraints_bytes() const {
    return constraints_ ? static_cast<int64_t>(constraints_->bytes_max()) : 0;
  }
  int64_t draft_model_bytes() const {
    return draft_model_ ? draft_model_->model().peak_bytes() : 0;
  }
  int64_t all_bytes() const {
    return loaded_->peak_bytes() + draft_model_bytes() + drafts_bytes() + constraints_bytes() +
           images_.memory_bytes();
  }

  // A cache of a chosen size is not cut to what drafts and constraints leave of the limit.
  Status check_limit() const {
    const int64_t limit_bytes = model_.device.memory_limit_bytes;
    if (limit_bytes == 0 || all_bytes() <= limit_bytes) return {};
    return fail(
        Code::kExhausted,
        "the model takes {}, drafts {}{}, constraints {} and reading images {}, --memory-limit is "
        "{}; choose fewer --kv-tokens, --speculate off, less --constraint-memory or --no-images",
        format_bytes(loaded_->peak_bytes()), format_bytes(drafts_bytes()),
        draft_model_ ? fmt::format(", their model {}", format_bytes(draft_model_bytes())) : "",
        format_bytes(constraints_bytes()), format_bytes(images_.memory_bytes()),
        format_bytes(limit_bytes));
  }

  Status measure_peaks(api::Service& service) {
    JIGE_TRY(const double bytes, measure_read_bytes_per_s(devices_.compute(), streaming_bytes()));
    JIGE_TRY(const std::optional<DType> compute, read_compute_dtype(model_.dtype));
    JIGE_TRY(const double flops,
             measure_gemm_flops_per_s(devices_.compute(),
                                      compute.value_or(default_training_dtype(devices_.on_gpu())),
                                      {}, 0.3));
    service.set_peaks({.bytes_per_s = bytes, .flops_per_s = flops});
    return {};
  }

  Result<api::ServedModel> served_model() {
    JIGE_TRY(const std::string description, read_file(folder_ + "/config.json"));
    const model::InferenceSizes& sizes = loaded_->sizes();
    api::ServedModel served{.name = name_, .tokenizer = *tokenizer_, .engine = engine_.get()};
    served.fingerprint = fmt::format(
        "jige-{}-{}-{:08x}", kVersion, served_numbers(sizes),
        static_cast<uint32_t>(derive_key(static_cast<uint64_t>(active_isa()), description)));
    served.created_s = static_cast<int64_t>(std::time(nullptr));
    if (replanner_) served.replan = [&replanner = *replanner_] { return replanner.status(); };
    JIGE_DO(add_adapters(served));
    served.context_max = engine_->context_max();
    served.model_context_max = loaded_->config().context_max;
    served.vocab_size = static_cast<int32_t>(loaded_->config().vocab_size);
    if (embedding_) {
      JIGE_TRY(served.embedding,
               served_embedding(*embedding_, folder_, loaded_->config(), engine_->context_max()));
      served.embedding->by_user = serve_.fair_share;
    }
    if (pairs_) {
      served.pairs = served_pairs(*pairs_, loaded_->config(), engine_->context_max());
      served.pairs->by_user = serve_.fair_share;
    }
    if (makes_vectors()) return served;
    served.constraints = constraints_;
    JIGE_DO(serve_.add_answers(folder_, served));
    served.images = images_.reader(*loaded_, engine_->context_max());
    return served;
  }

  Status add_adapters(api::ServedModel& served) {
    for (size_t i = 0; i < adapters_.size(); ++i) {
      const model::AdapterSource& adapter = adapters_[i];
      JIGE_TRY(std::string fingerprint,
               api::adapter_fingerprint(served.fingerprint, adapter.folder));
      served.adapters->add({.name = adapter.name,
                            .root = folder_name(adapter.folder),
                            .fingerprint = std::move(fingerprint),
                            .number = static_cast<int32_t>(i),
                            .created_s = served.created_s});
    }
    if (serve_.adapter_root.empty()) return {};
    JIGE_TRY(served.loader,
             api::AdapterLoader::create(serve_.adapter_root, *loaded_, served.fingerprint));
    return {};
  }

  // `text_tokens`: that a text for a vector may have, or prompt and answer together.
  void tell_ready(double seconds, int64_t text_tokens) {
    const model::InferenceSizes& sizes = loaded_->sizes();
    const model::InferenceMemory memory = model::inference_memory(loaded_->architecture(), sizes);
    const int64_t work_bytes = memory.activations_bytes + memory.logits_bytes;
    if (output_.json) {
      return print_json(Json{{"event", "ready"},
                             {"model", name_},
                             {"seconds", seconds},
                             {"scheduling", plan::settings_json(engine_->settings())},
                             {"in_flight", engine_options_.batches_in_flight},
                             {"context_max", text_tokens},
                             {"embedding_dimensions", embedding_dimensions()},
                             {"rerank", pairs_.has_value()},
                             {"weights_bytes", memory.weights.total_bytes()},
                             {"streamed_layers", sizes.streamed_layers.size()},
                             {"streamed_bytes", memory.weights.streamed_bytes},
                             {"adapters", adapters_json(*loaded_, adapters_, memory)},
                             {"kv_cache", kv_cache_name(sizes.kv_dtype)},
                             {"adapter_rooms", rooms_json(*loaded_, serve_.adapter_root, memory)},
                             {"kv_bytes", memory.kv_bytes},
                             {"kv_tokens", sizes.kv_block_count * ops::kKvBlockTokens},
                             {"states", answer_states()},
                             {"kept_states", kept_states()},
                             {"states_bytes", memory.states_bytes},
                             {"workspace_bytes", work_bytes},
                             {"drafts_bytes", drafts_bytes()},
                             {"draft_model_bytes", draft_model_bytes()},
                             {"constraints_bytes", constraints_bytes()},
                             {"images_bytes", images_.memory_bytes()},
                             {"memory_bytes", all_bytes()}});
    }
    const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
    const std::string adapters = adapters_text(*loaded_, adapters_, serve_.adapter_root, memory);
    const std::string states =
        sizes.state_count > 0
            ? fmt::format("{} for {} states and {} kept ones, ", shown(memory.states_bytes),
                          answer_states(), kept_states())
            : "";
    print_text(fmt::format(
        "{}memory: {} weights, {} adapters, {} {} cache of {} tokens, {}{} workspace, {} drafts, "
        "{}{} constraints{}; {} in all\n"
        "ready after {:.2f} s: \"{}\", {}\n",
        adapters, shown(memory.weights.total_bytes()), shown(memory.adapters_total_bytes()),
        shown(memory.kv_bytes), kv_cache_name(sizes.kv_dtype),
        sizes.kv_block_count * ops::kKvBlockTokens, states, shown(work_bytes),
        shown(drafts_bytes()), draft_model_text(), shown(constraints_bytes()), images_text(),
        shown(all_bytes()), seconds, name_,
        pairs_       ? fmt::format("scores of pairs of up to {} tokens", text_tokens)
        : embedding_ ? fmt::format("vectors of {} numbers, of texts of up to {} tokens",
                                   embedding_dimensions(), text_tokens)
                     : fmt::format("contexts of {} tokens, {}", text_tokens, scheduling_text())));
  }

  // With its cache, which says for how many tokens at once it can guess.
  std::string draft_model_text() const {
    if (!draft_model_) return "";
    return fmt::format("{} draft model with a cache of {} tokens, ",
                       format_bytes(draft_model_bytes()),
                       draft_model_->model().sizes().kv_block_count * ops::kKvBlockTokens);
  }

  std::string images_text() const {
    return images_.memory_bytes() > 0 ? ", " + images_.text() : "";
  }

  // 0 where the model has none.
  int64_t kept_states() const { return engine_->options().kept_state_count; }
  int64_t answer_states() const { return loaded_->sizes().state_count - kept_states(); }

  // As many answers at once as there are states, of a model that has them.
  std::string scheduling_text() const {
    plan::ServeSettings settings = engine_->settings();
    const auto states = static_cast<int32_t>(answer_states());
    if (states > 0) settings.batch_requests_max = std::min(states, settings.batch_requests_max);
    return plan::settings_text(settings);
  }

  bool makes_vectors() const { return kind_ != api::ServedKind::kAnswers; }
  // 0 where the model makes no vectors of texts.
  int64_t embedding_dimensions() const { return embedding_ ? loaded_->config().hidden_size : 0; }

  // Serves until a signal comes, then finishes what is under way.
  Status serve_until_stopped(api::Service& service, const api::HttpServer& server) {
    while (!interrupted()) {
      std::this_thread::sleep_for(kSignalPoll);
      if (!layers_) continue;
      // Without its layers it can answer nothing; who started it may start it again.
      std::optional<Error> gone = layers_->gone();
      if (!gone) continue;
      engine_->drain(kFailSeconds);  // all requests fail
      return tl::unexpected(std::move(*gone));
    }
    service.begin_drain();
    log_info("finishing the requests under way; once more ends the server at once");
    const bool drained = engine_->drain(serve_.drain_seconds);
    if (!drained && layers_) {
      layers_->give_up({Code::kCancelled, "the server was stopped"});
      engine_->drain(kFailSeconds);
    }
    const serve::EngineStatus status = engine_->status(/*with_requests=*/true);
    if (output_.json) {
      print_json(Json{{"event", "stopped"},
                      {"drained", drained},
                      {"http_requests", server.stats().requests_total},
                      {"prompt_tokens", status.counters.prompt_tokens},
                      {"generated_tokens", status.counters.generated_tokens}});
    }
    if (drained) return {};
    return fail(Code::kCancelled, "{} requests were cut off after {} s; --drain-seconds gives more",
                status.requests.size(), serve_.drain_seconds);
  }

  ModelFlags model_;
  const Flags* flags_ = nullptr;
  ServeFlags serve_;
  OutputFlags output_;
  serve::EngineOptions engine_options_;
  std::string folder_, name_;
  api::ServedKind kind_ = api::ServedKind::kAnswers;
  std::optional<formats::EmbeddingConfig> embedding_;  // where it makes vectors of texts
  std::optional<formats::PairConfig> pairs_;           // where it judges pairs of them
  std::vector<model::AdapterSource> adapters_;
  ComputeDevices devices_;
  ServeImages images_;
  std::unique_ptr<model::InferenceModel> loaded_;
  serve::LastingLayers* layers_ = nullptr;  // of the model, on other machines
  std::optional<serve::DraftModelPlan> draft_plan_;
  std::unique_ptr<serve::DraftModel> draft_model_;
  std::optional<text::Tokenizer> tokenizer_;
  std::shared_ptr<grammar::ConstraintCompiler> constraints_;
  std::unique_ptr<serve::Engine> engine_;
  std::unique_ptr<ServeReplanner> replanner_;
};

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace jige::cli
