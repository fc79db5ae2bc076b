#include "train/checkpoint_export.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "formats/checkpoint.h"
#include "formats/image_model_names.h"
#include "formats/lora_config.h"
#include "formats/staged_folder.h"
#include "model/architecture.h"
#include "tensor/cpu_device.h"
#include "text/tokenizer.h"
#include "train/export.h"
#include "train/run_setup.h"
#include "train/run_source.h"
#include "train/run_state.h"

namespace jige::train {
namespace {

using formats::CheckpointName;
using formats::CheckpointReader;

constexpr int kOpenAttempts = 10;

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::vector<int64_t> steps_of(const std::vector<CheckpointName>& names) {
  std::vector<int64_t> steps;
  for (const CheckpointName& name : names) steps.push_back(name.step);
  return steps;
}

Result<CheckpointReader> open_step(const std::string& folder, int64_t step) {
  std::string kept;
  for (const CheckpointName& name : formats::list_checkpoints(folder)) {
    if (name.step == step) return CheckpointReader::open(folder + "/" + name.folder);
    kept += (kept.empty() ? "" : ", ") + std::to_string(name.step);
  }
  return fail(Code::kNotFound, "{}: has no checkpoint of step {}; the steps it keeps: {}", folder,
              step, kept);
}

Result<CheckpointReader> open_checkpoint(const CheckpointExportOptions& options) {
  const std::string folder = options.run_folder + "/checkpoints";
  if (!exists(options.run_folder)) {
    return fail(Code::kNotFound, "{}: there is no such run", options.run_folder);
  }
  for (int attempt = 1;; ++attempt) {
    const auto steps = steps_of(formats::list_checkpoints(folder));
    if (steps.empty()) {
      return fail(Code::kNotFound,
                  "{}: the run has no checkpoint yet; `jige train --save-every N` says when it "
                  "writes one",
                  options.run_folder);
    }
    auto reader =
        options.step ? open_step(folder, *options.step) : CheckpointReader::open_latest(folder);
    // What the run removed while it was read says nothing about what it has now.
    if (reader || attempt == kOpenAttempts ||
        steps_of(formats::list_checkpoints(folder)) == steps) {
      return reader;
    }
  }
}

// What the checkpoint's state says about the model.
struct Described {
  std::unique_ptr<const model::Architecture> architecture;
  RunOrigin origin;
  std::string base_checksum;  // with LoRA
};

Result<formats::LoraConfig> read_lora(const Json& json, const std::string& where) {
  formats::LoraConfig lora;
  JIGE_TRY(lora.rank, get_int(json, "rank", where));
  JIGE_TRY(lora.alpha, get_number(json, "alpha", where));
  JIGE_TRY(lora.use_dora, get_bool_or(json, "dora", false, where));
  JIGE_TRY(lora.use_rslora, get_bool_or(json, "rs", false, where));
  JIGE_TRY(lora.dropout, get_number_or(json, "dropout", 0, where));
  if (lora.rank < 1 || lora.rank > formats::kLoraRankMax || !(lora.alpha > 0)) {
    return fail(Code::kCorrupt, "{}: has an adapter of rank {} and alpha {}", where, lora.rank,
                lora.alpha);
  }
  const auto modules = json.find("target_modules");
  if (modules == json.end() || !modules->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"target_modules\" is no list", where);
  }
  for (const Json& module : *modules) {
    if (!module.is_string()) {
      return fail(Code::kCorrupt, "{}: field \"target_modules\" holds {}", where,
                  dump_json(module));
    }
    lora.target_modules.push_back(module.get<std::string>());
  }
  return lora;
}

Result<Described> describe(const CheckpointReader& checkpoint) {
  const std::string where = checkpoint.folder() + "/state.json";
  const Json& state = checkpoint.state();
  const auto identity = state.find("identity");
  if (identity == state.end() || !identity->is_object() || !identity->contains("model")) {
    return fail(Code::kCorrupt, "{}: does not say of which model it is; no run wrote it", where);
  }
  JIGE_TRY(const formats::ModelConfig config,
           formats::parse_model_config(identity->at("model"), where));
  std::optional<formats::LoraConfig> lora;
  Described described;
  if (const auto found = identity->find("lora"); found != identity->end()) {
    JIGE_TRY(lora, read_lora(*found, where));
    JIGE_TRY(described.base_checksum, get_string(*found, "base", where));
  }
  JIGE_TRY(described.architecture, model::Architecture::create(config, lora));
  JIGE_TRY(described.origin, RunOrigin::from_state(state, where));
  return described;
}

// The trained parameters as the checkpoint holds them.
Result<std::vector<model::NamedParam>> stored_params(const CheckpointReader& checkpoint,
                                                     const model::Architecture& architecture) {
  std::vector<model::NamedParam> params = model::trained_params(architecture, {});
  for (model::NamedParam& param : params) {
    JIGE_TRY(param.value, checkpoint.tensor(kCheckpointValues, param.spec->name));
    if (param.value.dtype == DType::kF32 && param.value.shape == param.spec->shape) continue;
    return fail(Code::kCorrupt, "{}: {} is {} {}, its model has f32 {}", checkpoint.folder(),
                param.spec->name, dtype_info(param.value.dtype).name, param.value.shape.to_string(),
                param.spec->shape.to_string());
  }
  return params;
}

// The folder that the run was begun from: of an adapter its base; empty where nothing says so.
std::string begun_from(const RunOrigin& origin) {
  if (!origin.base_folder.empty()) return origin.base_folder;
  if (!origin.image_folder.empty()) return origin.image_folder;
  return origin.source ? origin.source->folder : "";
}

// The tokenizer: asked for, or where the run found it, or beside the run, should that have moved,
// or in the model that it was begun from, which may have moved with it.
Result<std::string> find_tokenizer(const CheckpointExportOptions& options,
                                   const RunOrigin& origin) {
  if (!options.tokenizer_folder.empty()) return options.tokenizer_folder;
  if (!origin.tokenizer_folder.empty() && exists(origin.tokenizer_folder)) {
    return origin.tokenizer_folder;
  }
  const std::string own = options.run_folder + "/tokenizer";
  if (exists(own)) return own;
  if (!options.base_folder.empty() && origin.tokenizer_folder == begun_from(origin)) {
    return options.base_folder;
  }
  return fail(Code::kNotFound,
              "{}: the run's tokenizer{} is not there any more; name its folder with --tokenizer",
              options.run_folder,
              origin.tokenizer_folder.empty() ? "" : ", " + origin.tokenizer_folder + ",");
}

Result<std::string> find_base(const CheckpointExportOptions& options, const Described& described) {
  const std::string folder =
      options.base_folder.empty() ? described.origin.base_folder : options.base_folder;
  if (folder.empty() || !exists(folder)) {
    return fail(
        Code::kNotFound,
        "{}: the model that the adapter belongs to{} is not there any more; name its folder "
        "with --base, or export the adapter alone with --adapter",
        options.run_folder, folder.empty() ? "" : ", " + folder + ",");
  }
  JIGE_TRY(const std::string checksum, hash_weights(folder));
  if (checksum == described.base_checksum) return folder;
  return other_base({.adapter = options.run_folder,
                     .made_for = described.origin.base_folder,
                     .given = folder,
                     .remedy = "name the folder of those that it was trained on with --base, or "
                               "export the adapter alone with --adapter"});
}

// That a folder that is named has the weights that the run was begun from.
Status check_begun_from(const CheckpointExportOptions& options, const RunOrigin& origin,
                        const std::string& folder) {
  std::error_code error;
  if (std::filesystem::equivalent(folder, begun_from(origin), error) || !origin.source) return {};
  JIGE_TRY(const std::string checksum, hash_weights(folder));
  if (checksum == origin.source->checksum) return {};
  return fail(Code::kInvalidArgument,
              "{}: was begun from the model in {}, {} has other weights; name the folder of those "
              "with --base",
              options.run_folder, begun_from(origin), folder);
}

// Of a run that trains all weights of a model that reads images: the folder of what does; empty
// where its model reads text alone. Older checkpoints say no more than what they were begun from.
Result<std::string> find_image_folder(const CheckpointExportOptions& options,
                                      const Described& described) {
  const RunOrigin& origin = described.origin;
  const std::string folder = options.base_folder.empty() ? begun_from(origin) : options.base_folder;
  if (folder.empty()) return folder;
  JIGE_TRY(const bool with_images, formats::has_images(folder));
  if (with_images) {
    JIGE_DO(check_begun_from(options, origin, folder));
    return folder;
  }
  if (origin.image_folder.empty()) return std::string();
  if (exists(folder)) {
    return fail(Code::kInvalidArgument,
                "{}: the run began from {}, whose model reads images, and {} holds none that does; "
                "name its folder with --base",
                options.run_folder, origin.image_folder, folder);
  }
  return fail(Code::kNotFound,
              "{}: the model that the run began from, {}, which has what reads images, is not "
              "there any more; name its folder with --base",
              options.run_folder, folder);
}

Status check_target(const CheckpointExportOptions& options, const std::string& folder) {
  if (!exists(folder)) return {};
  if (options.replace) return formats::check_replaceable(folder);
  return fail(Code::kInvalidArgument,
              "{}: is there already; name another folder, or replace it with --replace", folder);
}

Status write_folder(const CheckpointExportOptions& options, const CheckpointReader& checkpoint,
                    const Described& described, const CheckpointExport& target) {
  JIGE_TRY(const auto params, stored_params(checkpoint, *described.architecture));
  const model::Masters masters{.architecture = *described.architecture, .params = params};
  CpuDevice device(CpuDeviceOptions{.thread_count = 1});
  JIGE_TRY(const auto stream, device.make_stream());
  if (target.adapter) {
    const std::string& base =
        options.base_folder.empty() ? described.origin.base_folder : options.base_folder;
    return export_adapter(masters, *stream, base, target.folder);
  }
  JIGE_TRY(const std::string tokenizer_folder, find_tokenizer(options, described.origin));
  JIGE_TRY(const auto tokenizer, text::Tokenizer::load(tokenizer_folder));
  const int64_t vocab_size = described.architecture->config().vocab_size;
  if (tokenizer.vocab_size() > vocab_size) {
    return fail(Code::kInvalidArgument,
                "{}: the tokenizer has {} tokens, the model vocab_size {}; they do not belong "
                "together",
                tokenizer_folder, tokenizer.vocab_size(), vocab_size);
  }
  ExportOptions model_options{.folder = target.folder,
                              .tokenizer_folder = tokenizer_folder,
                              .image_folder = {},
                              .dtype = target.dtype,
                              .cancelled = options.cancelled};
  if (!described.architecture->lora()) {
    JIGE_TRY(model_options.image_folder, find_image_folder(options, described));
    return export_model(masters, tokenizer.special(), *stream, model_options);
  }
  JIGE_TRY(const std::string base, find_base(options, described));
  model_options.image_folder = base;
  // Never committed, so it goes when the merged model is there.
  JIGE_TRY(const auto staged, formats::StagedFolder::create(target.folder + "-adapter"));
  JIGE_DO(model::save_adapter(staged.path(), masters, *stream, base));
  return export_merged(base, staged.path(), tokenizer.special(), model_options);
}

}  // namespace

Result<CheckpointExport> export_checkpoint(const CheckpointExportOptions& asked) {
  CheckpointExportOptions options = asked;
  for (std::string* folder : {&options.run_folder, &options.out_folder}) {
    while (folder->size() > 1 && folder->back() == '/') folder->pop_back();
  }
  JIGE_TRY(const CheckpointReader checkpoint, open_checkpoint(options));
  JIGE_TRY(const Described described, describe(checkpoint));
  CheckpointExport target{.folder = options.out_folder,
                          .checkpoint = checkpoint.folder(),
                          .step = checkpoint.step(),
                          .dtype = options.dtype.value_or(described.origin.export_dtype),
                          .adapter = options.adapter};
  if (target.folder.empty()) {
    target.folder = fmt::format("{}/exported-step-{:08d}", options.run_folder, target.step);
  }
  if (target.adapter && !described.architecture->lora()) {
    return fail(Code::kInvalidArgument, "{}: the run trains all weights, it has no adapter",
                options.run_folder);
  }
  if (target.adapter) target.dtype = DType::kF32;
  JIGE_DO(check_target(options, target.folder));
  const std::string parent = std::filesystem::path(target.folder).parent_path().string();
  if (!parent.empty()) JIGE_DO(make_folders(parent));
  JIGE_DO(write_folder(options, checkpoint, described, target));
  return target;
}

}  // namespace jige::train
