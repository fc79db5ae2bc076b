#include "cli/image_model.h"

#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "formats/image_config.h"
#include "images/decode.h"

namespace jige::cli {

Result<ImageModel> load_image_model(const std::string& folder, const text::Tokenizer& tokenizer,
                                    const model::InferenceModel& model, CpuDevice& device,
                                    const ImageModelOptions& options) {
  JIGE_TRY(std::optional<formats::ImageConfig> config, formats::load_image_config(folder));
  if (!config || !model.takes_given_rows()) {
    return fail(Code::kUnsupported,
                "{}: this model reads text, and no images here; those of Mistral 3 read them "
                "(docs/formats.md, \"Images\")",
                folder);
  }
  JIGE_DO(formats::find_image_tokens(*config, tokenizer));
  ImageModel made;
  JIGE_TRY(made.tower, model::ImageTower::load(folder, *config, device,
                                               {.memory_bytes_max = options.memory_bytes_max}));
  log_debug("{}: what reads images takes {}", folder, format_bytes(made.tower->peak_bytes()));
  const auto encoder = [tower = made.tower.get()](const images::Image& image, const GoOn& go_on) {
    return tower->encode(image, go_on);
  };
  made.prompts = std::make_unique<serve::ImagePrompts>(
      *config, encoder,
      serve::ImagePrompts::Options{.vocab_size = static_cast<int32_t>(model.config().vocab_size),
                                   .context_max = options.context_max});
  return made;
}

Result<ImageModel> load_image_model(const LoadedModel& loaded, const ModelFlags& flags) {
  const int64_t left_bytes = loaded.memory_left(flags.device.arena_bytes_max());
  return load_image_model(
      loaded.folder, loaded.tokenizer, *loaded.model, *loaded.devices.host,
      {.memory_bytes_max = left_bytes, .context_max = loaded.model->context_max()});
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
  return images::decode_image(std::as_bytes(std::span(bytes)), path);
}

}  // namespace jige::cli
