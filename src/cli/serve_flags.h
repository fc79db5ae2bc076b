// The flags of `jige serve`: address, keys, scheduling, limits.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "base/result.h"
#include "cli/http_flags.h"
#include "cli/reasoning_flag.h"
#include "cli/round_flags.h"
#include "cli/serve_replanner.h"
#include "cli/speculation_flags.h"
#include "grammar/constraint_compiler.h"
#include "serve/engine.h"
#include "sim/serve_plan_file.h"

namespace jige::cli {

class Flags;

// Answers at once of a model with recurrent layers, unless flags say how many.
inline constexpr int64_t kStatesUsual = 16;

struct ServeFlags : HttpFlags {
  bool no_page = false;
  std::string served_name;
  std::vector<std::string> adapters;  // "NAME=FOLDER"
  std::string adapter_root;
  int64_t adapters_max = 0;
  int64_t adapter_rank_max = 0;

  std::string plan;
  bool replan = false;
  double replan_seconds = 60;
  std::string replan_out;
  std::string policy = "chunked";
  std::string admission = "reserve";
  RoundFlags rounds;
  int64_t batch_requests = 64;
  std::optional<int64_t> in_flight;
  int64_t batch_tokens = 512;
  int64_t kv_tokens = 0;
  int64_t states = 0;
  int64_t kept_states = 8;
  int64_t constraint_bytes = static_cast<int64_t>(grammar::kConstraintBytesMax);
  bool no_prefix_cache = false;
  bool fair_share = false;
  SpeculationFlags speculation;
  std::string event_log;

  std::string tool_calls = "auto";
  ReasoningFlag reasoning;

  bool embeddings = false;
  bool rerank = false;
  std::string pooling;

  int64_t queue_requests = 0;  // 0: by what is served
  int64_t queue_tokens = int64_t{1} << 20;
  int64_t choices_max = 16;
  int64_t tokens_default = 0;
  double stall_seconds = 30;
  bool measure_peaks = false;
  bool no_images = false;
  int64_t images_bytes = int64_t{512} << 20;
  int64_t image_pixels = 0;

  // Everything but FOLDER and what every command that computes has.
  void declare(Flags& flags);

  // The settings of --plan in place of those by flags, if there is one; before engine_options().
  // With --replan there is room for all that another plan may choose. Fails with kInvalidArgument
  // where flags are given that the plan is about or that need one, and as reading it.
  Status read_plan(const Flags& flags);
  // Fails with kUnsupported on several batches in flight where the model is not divided.
  Status check_in_flight(bool divided) const;
  // Fails with kInvalidArgument where the plan rests on times of a model of another shape.
  Status check_plan(const std::string& folder) const;
  // What plans again for an engine with these options; null without --replan.
  std::unique_ptr<ServeReplanner> make_replanner(serve::Engine& engine) const;
  // Warnings where the cache holds less than what the plan was made for, or iterations will take
  // other times than those that it rests on.
  void compare_with_plan(const sim::ProfiledSubject& now, int64_t cached_tokens) const;
  // Fails as SpeculationFlags does.
  Result<serve::EngineOptions> engine_options() const;
  // The same for a model that makes vectors: texts wait there, many to a request, as many
  // run at once as an iteration has tokens, and there is nothing to guess.
  Result<serve::EngineOptions> embedding_engine_options() const;
  // What a folder's model is to be served for. Fails with kInvalidArgument where flags want two
  // things.
  Result<api::ServedKind> kind_of(const std::string& folder) const;
  // Fails with kInvalidArgument where flags are given that have no effect on a server of this kind,
  // or with its policy.
  Status check_use(const Flags& flags, const std::string& folder, api::ServedKind kind) const;
  api::RequestLimits request_limits() const;
  // Sequences that have states at once, of a model with recurrent layers; the kept ones are beside
  // them.
  int64_t answer_states() const;
  // Room for adapters that are loaded while it serves, added to the options. Fails with
  // kInvalidArgument where nothing could be loaded into it.
  Status add_adapter_rooms(model::InferenceOptions& options) const;
  // Larger bodies where the folder's model reads images and --max-body says nothing. Fails as
  // load_image_config does.
  Status make_room_for_images(const Flags& flags, const std::string& folder, api::ServedKind kind);
  // What answers of a folder's model are like: its defaults and its chat template, but for what
  // flags say. Fails as load_generation_config and ChatTemplate::parse do.
  Status add_answers(const std::string& folder, api::ServedModel& served) const;

 private:
  // How the answers of a model with this template call tools.
  api::ToolFormat tool_format(const text::ChatTemplate& chat) const;
  Status make_room_for_plans();

  std::optional<sim::ServePlanFile> planned_;
};

}  // namespace jige::cli
