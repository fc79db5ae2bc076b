#include "cli/image_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/passing_note.h"
#include "formats/image_config.h"
#include "formats/image_limit.h"
#include "images/decode.h"

namespace jige::cli {
namespace {

using Encoder = serve::ImagePrompts::Encoder;

Encoder encoder_of(model::ImageTower& tower) {
  return [&tower](const images::Image& image, const GoOn& go_on) {
    return tower.encode(image, go_on);
  };
}

// Large images take seconds.
Encoder told_encoder_of(model::ImageTower& tower) {
  return [encode = encoder_of(tower)](const images::Image& image, const GoOn& go_on) {
    const std::string size = fmt::format("{} x {}", image.width, image.height);
    PassingNote note(!log_enabled(LogLevel::kInfo));
    note.say(fmt::format("reading an image of {}", size));
    const StopWatch watch;
    auto rows = encode(image, go_on);
    note.clear();
    if (rows) log_info("an image of {} read in {:.2f} s", size, watch.seconds());
    return rows;
  };
}

std::unique_ptr<serve::ImagePrompts> prompts_of(const model::ImageTower& tower,
                                                const model::InferenceModel& model,
                                                serve::ImagePrompts::Options options,
                                                Encoder encoder) {
  options.vocab_size = static_cast<int32_t>(model.config().vocab_size);
  return std::make_unique<serve::ImagePrompts>(tower.config(), std::move(encoder), options);
}

// Whether a model takes so many rows together.
Status check_image_rows(const formats::ImageConfig& config, const model::InferenceModel& model) {
  if (!config.mutual_rows) return {};
  JIGE_DO(model.check_mutual_rows());
  const int64_t together = model.sizes().batch_tokens_max;
  if (config.rows_max() <= together) return {};
  return fail(
      Code::kInvalidArgument,
      "the {} rows of an image see one another, and the model takes {} tokens at once; raise "
      "--batch-tokens",
      config.rows_max(), together);
}

}  // namespace

void declare_image_pixels(Flags& flags, int64_t& pixels_max) {
  flags.integer("--image-pixels N", pixels_max, {.min = 0, .max = int64_t{1} << 28},
                "the most pixels that an image has for the model: larger ones shrink to it, which "
                "saves memory, time and tokens; 0: as many as the folder says");
}

Result<std::optional<formats::ImageConfig>> read_image_config(const std::string& folder,
                                                              int64_t pixels_max) {
  JIGE_TRY(std::optional<formats::ImageConfig> config, formats::load_image_config(folder));
  if (!config || pixels_max == 0) return config;
  if (Status limited = formats::limit_image_pixels(*config, pixels_max); !limited) {
    return with_context(std::move(limited.error()), "--image-pixels");
  }
  return config;
}

std::optional<DType> stored_image_dtype(const std::string& folder,
                                        const formats::ImageConfig& images) {
  const auto parts = model::ImageParts::create(images);
  const auto files = formats::TensorFolder::open(folder);
  if (!parts || !files) return std::nullopt;
  const auto dtype = model::image_tower_dtype(**parts, *files);
  return dtype ? std::optional(*dtype) : std::nullopt;
}

int64_t image_memory_bytes(const std::string& folder, int64_t context, int64_t pixels_max) {
  const auto images = read_image_config(folder, pixels_max);
  const auto language = formats::load_model_config(folder);
  if (!images || !*images || !language) return 0;
  const auto parts = model::ImageParts::create(**images);
  const auto compute = stored_image_dtype(folder, **images);
  if (!parts || !compute) return 0;
  const int64_t rows =
      context > 0 ? context : std::min(language->context_max, model::kContextDefaultMax);
  return model::image_tower_memory(**parts, *compute, rows).total_bytes();
}

Result<std::unique_ptr<model::ImageTower>> load_image_tower(const std::string& folder,
                                                            const text::Tokenizer& tokenizer,
                                                            CpuDevice& device,
                                                            const model::ImageTowerOptions& options,
                                                            int64_t pixels_max) {
  JIGE_TRY(std::optional<formats::ImageConfig> config, read_image_config(folder, pixels_max));
  if (!config) return nullptr;
  JIGE_DO(formats::find_image_tokens(*config, tokenizer));
  JIGE_TRY(auto tower, model::ImageTower::load(folder, *config, device, options));
  log_debug("{}: what reads images takes {}", folder, format_bytes(tower->peak_bytes()));
  return tower;
}

Status prepare_for_images(const model::ImageTower& tower, model::InferenceModel& model) {
  JIGE_DO(check_image_rows(tower.config(), model));
  const std::vector<uint8_t>& pairs = tower.config().pair_places;
  return pairs.empty() ? Status() : model.turn_by_places(pairs);
}

std::unique_ptr<serve::ImagePrompts> make_image_prompts(model::ImageTower& tower,
                                                        const model::InferenceModel& model,
                                                        serve::ImagePrompts::Options options) {
  return prompts_of(tower, model, options, encoder_of(tower));
}

Result<ImageModel> load_image_model(const LoadedModel& loaded, const ModelFlags& flags,
                                    int64_t pixels_max) {
  ImageModel made;
  if (loaded.model->takes_given_rows()) {
    JIGE_TRY(made.tower, load_image_tower(loaded.folder, loaded.tokenizer, *loaded.devices.host,
                                          {.memory_bytes_max =
                                               loaded.memory_left(flags.device.arena_bytes_max()),
                                           .rows_max = loaded.model->context_max()},
                                          pixels_max));
  }
  if (!made.tower) {
    return fail(Code::kUnsupported,
                "{}: this model reads text, and no images here; those of Gemma 3, Pixtral, "
                "Mistral 3, SmolVLM, Idefics3, InternVL 3, LLaVA, Qwen2-VL to Qwen3-VL and Qwen3.5 "
                "do (docs/formats.md, \"Images\")",
                loaded.folder);
  }
  JIGE_DO(prepare_for_images(*made.tower, *loaded.model));
  made.prompts =
      prompts_of(*made.tower, *loaded.model, {.context_max = loaded.model->context_max()},
                 told_encoder_of(*made.tower));
  return made;
}

Status may_read_on() {
  if (!interrupted()) return {};
  return fail(Code::kCancelled, "by a signal, while an image was read");
}

Result<std::vector<images::Image>> read_image_files(std::span<const std::string> paths) {
  std::vector<images::Image> images;
  for (const std::string& path : paths) {
    JIGE_TRY(images::Image image, read_image_file(path));
    images.push_back(std::move(image));
  }
  return images;
}

Result<images::Image> read_image_file(const std::string& path) {
  JIGE_TRY(const std::string bytes, read_file(path));
  return images::decode_image(std::as_bytes(std::span(bytes)), path, {}, may_read_on);
}

}  // namespace jige::cli
