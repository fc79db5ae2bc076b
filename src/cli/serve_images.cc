#include "cli/serve_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/thread_priority.h"
#include "cli/image_model.h"
#include "formats/image_config.h"

namespace jige::cli {
namespace {

constexpr int64_t kImagesKept = 64;  // of the largest, at most
// A third of what an engine at work weighs, so that images are read beside one, too.
constexpr int kImagesNiceness = 5;

// Runs what begins threads that are to stand back.
template <typename Function>
void begin_behind(const Function& function) {
  std::thread([&] {
    lower_thread_priority(kImagesNiceness);
    function();
  }).join();
}

}  // namespace

Status ServeImages::load(const std::string& folder, const text::Tokenizer& tokenizer,
                         const ServeImagesOptions& options) {
  JIGE_TRY(const auto wanted, read_image_config(folder, options.pixels_max));
  if (!wanted) return {};  // and no threads are begun
  // Their rows see one another, or have places by line and column.
  const bool on_processors_alone = wanted->mutual_rows || !wanted->pair_places.empty();
  if (on_processors_alone && !options.on_processors) {
    log_warn(
        "no images are read: those of this model are read where all of it runs on the processors "
        "of one machine");
    return {};
  }
  begin_behind([&] {
    device_ = std::make_unique<CpuDevice>(
        CpuDeviceOptions{.name = "images", .thread_count = options.threads});
  });
  auto tower = load_image_tower(
      folder, tokenizer, *device_,
      {.memory_bytes_max = options.memory_bytes_max, .rows_max = options.context_max},
      options.pixels_max);
  if (!tower && tower.error().code == Code::kExhausted) {
    return with_context(std::move(tower.error()), "reading images (not with --no-images)");
  }
  if (!tower) {
    log_warn("no images are read: {}", tower.error().message);
    device_.reset();
    return {};
  }
  if (!*tower) return {};
  const formats::ImageConfig& config = (*tower)->config();
  const int64_t largest = (*tower)->rows_max() * config.levels() * config.text_width *
                          static_cast<int64_t>(sizeof(float));
  if (options.rows_bytes_max < largest) {
    return fail(Code::kInvalidArgument,
                "--image-memory {}: the rows of one image may take {}; give more, or --no-images",
                format_bytes(options.rows_bytes_max), format_bytes_up(largest));
  }
  rows_bytes_ = std::min(options.rows_bytes_max, kImagesKept * largest);
  tower_ = std::move(*tower);
  return {};
}

int64_t ServeImages::rows_together() const {
  return tower_ && tower_->config().mutual_rows ? tower_->config().rows_max() : 1;
}

std::string ServeImages::text() const {
  return fmt::format("{} images of up to {} rows", format_bytes(memory_bytes()),
                     tower_->rows_max());
}

std::shared_ptr<api::ImageReader> ServeImages::reader(model::InferenceModel& model,
                                                      int64_t context_max) {
  if (!tower_ || !model.takes_given_rows()) return nullptr;
  if (const Status prepared = prepare_for_images(*tower_, model); !prepared) {
    log_warn("no images are read: {}", prepared.error().message);
    tower_.reset();
    return nullptr;
  }
  prompts_ = make_image_prompts(*tower_, model,
                                {.context_max = context_max, .rows_bytes_max = rows_bytes_});
  serve::ImagePrompts& prompts = *prompts_;
  api::ImageTranslator translator{
      .placeholder_id = prompts.config().placeholder_id,
      .written = prompts.config().written,
      .token_count =
          [&prompts](images::ImageSize size) {
            return prompts.token_count(size.width, size.height);
          },
      .read = [&prompts](std::span<const int32_t> ids, std::span<const images::Image> images,
                         const GoOn& go_on) { return prompts.read(ids, images, go_on); },
      .counts = [&prompts] { return prompts.counts(); },
      .aside_tokens_max =
          tower_->aside_patches_max() / (prompts.config().merge * prompts.config().merge)};
  std::shared_ptr<api::ImageReader> reader;
  begin_behind([&] { reader = std::make_shared<api::ImageReader>(std::move(translator)); });
  return reader;
}

}  // namespace jige::cli
