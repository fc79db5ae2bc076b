#include "cli/loaded_model.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/log.h"
#include "cli/adapter_flags.h"
#include "cli/embedding_folder.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "serve/score_memory.h"

namespace jige::cli {
namespace {

int64_t left_beside(const model::InferenceModel& model, int64_t limit_bytes) {
  if (limit_bytes == kUnlimitedBytes) return limit_bytes;
  return std::max<int64_t>(0, limit_bytes - model.peak_bytes());
}

void tell_loaded(const std::string& folder, const model::InferenceModel& model,
                 const text::Tokenizer& tokenizer) {
  const int64_t known = model.architecture().config().vocab_size;
  if (tokenizer.vocab_size() > known) {
    log_warn(
        "{}: the tokenizer has {} tokens, the model {}; texts that need the others are refused",
        folder, tokenizer.vocab_size(), known);
  }
  log_debug("{}: loaded in {:.2f} s, {} in use", folder, model.load_seconds(),
            format_bytes(model.peak_bytes()));
  tell_streamed_layers(model);
}

}  // namespace

int64_t LoadedModel::memory_left(int64_t limit_bytes) const {
  return left_beside(*model, limit_bytes);
}

void ModelFlags::declare_folder(Flags& flags) {
  flags.text("FOLDER", folder, "model folder, or folder of a run");
}

void ModelFlags::declare_adapter(Flags& flags) {
  flags.text("--adapter FOLDER", adapter,
             "run the model with a LoRA adapter, or that of a run, without merging the two");
}

void ModelFlags::declare(Flags& flags) {
  device.declare(flags, true);
  layers.declare(flags);
  layers_on.declare(flags);
  flags.integer("--context N", context, {.min = 0, .max = int64_t{1} << 31},
                "longest text in tokens; 0: the model's own, but 4096 at most");
  flags.choice("--dtype NAME", dtype, {"auto", "f32", "bf16"},
               "type of the matrix products; auto: bf16 for weights of 16 bits, else f32");
  declare_quantize(flags, quantize);
  declare_kv_cache(flags, kv_cache);
}

Result<LoadedModel> ModelFlags::load(const ModelUse& use) const {
  JIGE_TRY(std::string found, find_model_folder(folder));
  std::vector<model::AdapterSource> adapters;
  if (!adapter.empty()) {
    JIGE_TRY(std::string source, find_adapter_folder("--adapter " + adapter, adapter));
    adapters.push_back({.name = {}, .folder = std::move(source)});
  }
  const int32_t chosen = adapters.empty() ? model::kNoAdapter : 0;
  JIGE_TRY(auto tokenizer, text::Tokenizer::load(found));
  std::optional<serve::DraftModelPlan> draft;
  const bool divided = layers_on.divide(device);
  if (use.speculation) {
    if (divided) JIGE_DO(use.speculation->check_divided(found));
    JIGE_TRY(draft, use.speculation->plan_draft_model(tokenizer, {.context_max = context}));
  }
  JIGE_TRY(ComputeDevices made, device.make());
  JIGE_DO(layers_on.check(device));
  JIGE_TRY(serve::LayerBudget budget, layers.budget(device));
  if (divided) budget = {};  // others have room, too
  budget.draft_model = draft ? &*draft : nullptr;
  JIGE_TRY(const std::optional<DType> compute, read_compute_dtype(dtype));
  model::InferenceOptions options{.compute = compute,
                                  .kv_dtype = read_kv_cache(kv_cache),
                                  .format = read_weight_format(quantize),
                                  .context_max = context,
                                  .scores = use.scores,
                                  .embeds = use.embeds,
                                  .adapters = std::move(adapters),
                                  .memory_bytes_max = device.arena_bytes_max()};
  options.batch_tokens_max = layers_on.batch_tokens(device, options.batch_tokens_max);
  // A row for the last token and for every token of a draft.
  options.logit_rows_max = std::max<int64_t>(options.logit_rows_max, 1 + use.draft_tokens);
  if (use.embeds) options.logit_rows_max = std::max(options.logit_rows_max, kEmbeddingRows);
  if (use.scores) {
    // Room for more texts at once is what images leave; one text has it in any case.
    const int64_t limit_bytes = options.memory_bytes_max;
    if (limit_bytes != kUnlimitedBytes) {
      options.memory_bytes_max = std::max<int64_t>(0, limit_bytes - use.images_bytes);
    }
    JIGE_TRY(options, serve::options_for_scores(found, options, made.compute().kind(), budget));
    options.memory_bytes_max = limit_bytes;
  }
  std::unique_ptr<model::InferenceModel> model;
  if (divided) {
    JIGE_TRY(serve::DividedModel parts, layers_on.load(found, made, device, layers, options,
                                                       {.draft_model = draft ? &*draft : nullptr}));
    model = std::move(parts.model);
  } else {
    JIGE_TRY(options, serve::fit_layers(found, options, budget, made.compute().kind()));
    JIGE_TRY(model, model::InferenceModel::load(found, made.compute(), options));
  }
  tell_loaded(found, *model, tokenizer);
  std::unique_ptr<serve::DraftModel> draft_model;
  if (draft) {
    const int64_t limit_bytes = device.arena_bytes_max();
    auto beside = serve::DraftModel::load(*draft, *model, left_beside(*model, limit_bytes));
    if (!beside && beside.error().code == Code::kExhausted && limit_bytes != kUnlimitedBytes) {
      return with_context(std::move(beside.error()),
                          "--draft-model, in what the model leaves of --memory-limit {}",
                          format_bytes(limit_bytes));
    }
    JIGE_TRY(draft_model, std::move(beside));
  }
  return LoadedModel{.folder = std::move(found),
                     .devices = std::move(made),
                     .model = std::move(model),
                     .tokenizer = std::move(tokenizer),
                     .adapter = chosen,
                     .draft_model = std::move(draft_model)};
}

}  // namespace jige::cli
