#include "train/run_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "formats/image_limit.h"
#include "train/image_rows.h"
#include "train/option_flags.h"

namespace jige::train {
namespace {

// Why a run like this has no way for images, whatever its model; or nothing.
std::string run_refusal(const TrainOptions& options) {
  const auto with = [](std::string_view what) {
    return fmt::format("images are not supported with {} yet: leave one of them out", what);
  };
  if (options.init_folder.empty()) return "a new model reads text alone";
  if (options.dpo) return with(flag_of("dpo"));
  if (options.grpo) return with(flag_of("grpo"));
  if (options.on_gpu()) return with("--device cuda");
  if (options.pipeline) return with("a pipeline of devices (--devices, --device-memory, --plan)");
  if (options.ranks && options.ranks->split_context) return with(flag_of("split_context"));
  if (options.data.packing == Packing::kStream) {
    return with(fmt::format("{} stream", flag_of("data.packing")));
  }
  return "";
}

constexpr const char* kReadsText =
    "this model reads text, and no images here (docs/formats.md, \"Images\", has those that do)";

}  // namespace

Status offer_images(const RunSetup& setup, const text::Tokenizer& tokenizer, DatasetOptions& data) {
  const TrainOptions& options = setup.options;
  data.no_images = run_refusal(options);
  if (!data.no_images.empty()) return {};
  auto config = formats::load_image_config(options.init_folder);
  if (!config || !*config) {
    data.no_images = config ? kReadsText : std::move(config.error().message);
    return {};
  }
  if (options.image_pixels_max > 0) {
    if (Status limited = formats::limit_image_pixels(**config, options.image_pixels_max);
        !limited) {
      return with_context(std::move(limited.error()), "{}", flag_of("image_pixels"));
    }
  }
  if (Status found = formats::find_image_tokens(**config, tokenizer); !found) {
    data.no_images = std::move(found.error().message);
    return {};
  }
  data.images = ImageEncoding{.config = std::move(**config), .context = options.context};
  data.image_folder = options.init_folder;
  return {};
}

Status add_images(RunSetup& setup, const DatasetOptions& data) {
  if (!setup.dataset.has_images()) return {};
  TrainOptions& options = setup.options;
  options.images = ImageTraining{.folder = options.init_folder,
                                 .config = data.images->config,
                                 .compute = options.compute,
                                 .context = options.context,
                                 .micro_batch_tokens = options.micro_batch_tokens};
  TrainPlan& plan = setup.plan;
  JIGE_TRY(const ImageRowsMemory memory, image_rows_memory(*options.images, *setup.architecture));
  setup.memory.images_bytes = memory.total_bytes();
  plan.memory.images_bytes = memory.total_bytes();
  for (const Corpus* corpus : {&setup.dataset.corpus, &setup.dataset.eval_corpus}) {
    for (const Corpus::Part& part : corpus->parts()) {
      plan.image_count += std::ssize(part.images);
      plan.image_reading_bytes = std::max(plan.image_reading_bytes,
                                          image_reading_bytes(options.images->config, part.images));
    }
  }
  plan.memory_predicted_bytes += memory.total_bytes() + plan.image_reading_bytes;
  return {};
}

}  // namespace jige::train
