#include "cli/bench_serve_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/layers_on_flags.h"
#include "cli/model_sizes.h"
#include "cli/random_model.h"
#include "cli/serve_flags.h"

namespace jige::cli {
namespace {

Result<std::string> write_random(const TemporaryFolder& folder, const std::string& size,
                                 std::optional<DType> dtype, int64_t context_max) {
  const ModelShape shape{.size = size, .context = context_max};
  JIGE_TRY(formats::ModelConfig config, make_llama_config(shape, base_size(shape).vocab_size));
  config.stored_dtype = dtype.value_or(default_training_dtype());
  JIGE_DO(write_random_model(folder.path(), config, 1));
  return folder.path();
}

}  // namespace

void BenchServeModelFlags::declare(Flags& flags) {
  flags.text("--model FOLDER", folder, "a model folder, run in this process");
  declare_form(flags);
}

void BenchServeModelFlags::declare_form(Flags& flags) {
  flags.text(
      "--random SIZE", random,
      fmt::format("a Llama with random weights instead: {}", fmt::join(model_size_names(), ", ")));
  flags.choice("--dtype NAME", dtype, {"auto", "f32", "bf16"},
               "type of matrix products; auto: as the weights, and bf16 for random ones where the "
               "processor has instructions for it");
  declare_quantize(flags, quantize);
  declare_kv_cache(flags, kv_cache);
  layers.declare(flags);
}

Result<std::unique_ptr<model::InferenceModel>> BenchServeModelFlags::load_model(
    const std::string& path, ComputeDevices& devices, const model::InferenceOptions& wanted) const {
  if (device.names_several()) {
    JIGE_TRY(serve::DividedModel divided,
             LayersOnFlags().load(path, devices, device, layers, wanted, {}));
    return std::move(divided.model);
  }
  JIGE_TRY(const serve::LayerBudget budget, layers.budget(device));
  JIGE_TRY(const model::InferenceOptions options,
           serve::fit_layers(path, wanted, budget, devices.compute().kind()));
  return model::InferenceModel::load(path, devices.compute(), options);
}

Result<BenchServeModel> BenchServeModelFlags::load(int64_t tokens_max, int64_t kv_blocks,
                                                   int64_t batch_tokens,
                                                   int64_t batch_requests) const {
  if (folder.empty() == random.empty()) {
    return fail(Code::kInvalidArgument, "give one of --model FOLDER and --random SIZE");
  }
  const std::vector<std::string> sizes = model_size_names();
  if (!random.empty() && std::ranges::find(sizes, random) == sizes.end()) {
    return fail(Code::kInvalidArgument, "--random: \"{}\" is not one of {}", random,
                fmt::join(sizes, ", "));
  }
  BenchServeModel made;
  JIGE_TRY(const std::optional<DType> compute, read_compute_dtype(dtype));
  std::optional<TemporaryFolder> temporary;  // only until the model is loaded
  std::string path;
  int64_t context_max = tokens_max;
  if (random.empty()) {
    JIGE_TRY(path, find_model_folder(folder));
    JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(path));
    context_max = std::min(context_max, config.context_max);
    JIGE_TRY(made.tokenizer, text::Tokenizer::load(path));
  } else {
    JIGE_TRY(TemporaryFolder folder_made, TemporaryFolder::make());
    temporary.emplace(std::move(folder_made));
    JIGE_TRY(path, write_random(*temporary, random, compute, context_max));
  }
  JIGE_TRY(made.devices, device.make());
  const model::InferenceOptions wanted{.compute = compute,
                                       .kv_dtype = read_kv_cache(kv_cache),
                                       .format = read_weight_format(quantize),
                                       .context_max = context_max,
                                       .kv_block_count = kv_blocks,
                                       .state_count = kStatesUsual,
                                       .batch_tokens_max = batch_tokens,
                                       .logit_rows_max = std::min(batch_requests, batch_tokens),
                                       .memory_bytes_max = device.arena_bytes_max()};
  JIGE_TRY(made.model, load_model(path, made.devices, wanted));
  tell_streamed_layers(*made.model);
  const formats::ModelConfig& config = made.model->config();
  const model::InferenceSizes& numbers = made.model->sizes();
  if (!made.tokenizer) {
    JIGE_TRY(made.tokenizer, numbered_tokenizer(config.vocab_size));
  }
  made.text = fmt::format("{}, {} parameters, {}", random.empty() ? folder : random + " (random)",
                          format_count(static_cast<double>(parameter_count(config))),
                          numbers_text(numbers.compute, numbers.format, numbers.kv_dtype));
  return made;
}

Result<text::Tokenizer> numbered_tokenizer(int64_t vocab_size) {
  std::string json =
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,)"
      R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":false,)"
      R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","merges":[],"vocab":{)";
  for (int64_t id = 0; id < vocab_size; ++id) {
    json += fmt::format("{}\"t{}\":{}", id == 0 ? "" : ",", id, id);
  }
  return text::Tokenizer::from_json(json + "}}}", "the tokenizer of a random model");
}

}  // namespace jige::cli
