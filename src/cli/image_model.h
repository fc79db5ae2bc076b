// Images for commands: files as pixels, and what reads them for a model that is loaded.
//
//   JIGE_TRY(const auto photos, read_image_files(files));
//   JIGE_TRY(const ImageModel reader, load_image_model(loaded, flags));
//   JIGE_TRY(const serve::ImagePrompt prompt, reader.prompts->read(ids, photos, may_read_on));
//
// A tower runs on processors, wherever the language model does. It may share the device of one that
// runs at the same time: their loops take turns. Threads: as ImagePrompts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/loaded_model.h"
#include "formats/image_config.h"
#include "images/image.h"
#include "model/image_tower.h"
#include "model/inference.h"
#include "serve/image_prompts.h"
#include "tensor/cpu_device.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct ImageModel {
  std::unique_ptr<model::ImageTower> tower;
  std::unique_ptr<serve::ImagePrompts> prompts;
};

// How large images may be that a command reads, in pixels; 0: as large as the folder says.
void declare_image_pixels(Flags& flags, int64_t& pixels_max);
// How a folder's model reads images of up to so many pixels; nothing where it reads text alone.
// Fails as load_image_config and limit_image_pixels do.
Result<std::optional<formats::ImageConfig>> read_image_config(const std::string& folder,
                                                              int64_t pixels_max);

// The type that what reads the images of a folder computes in (model::image_tower_dtype); nothing
// where the folder has no such weights.
std::optional<DType> stored_image_dtype(const std::string& folder,
                                        const formats::ImageConfig& images);

// What reading the images of a folder takes beside its model, of those that a context of so many
// tokens holds (0: the one that commands take); 0 where it reads none, or not in a way that Jige
// knows.
int64_t image_memory_bytes(const std::string& folder, int64_t context, int64_t pixels_max);

// What reads the images of a folder; null where its model reads text alone, or images in a way that
// Jige does not know. Fails as read_image_config, find_image_tokens and ImageTower::load do.
Result<std::unique_ptr<model::ImageTower>> load_image_tower(const std::string& folder,
                                                            const text::Tokenizer& tokenizer,
                                                            CpuDevice& device,
                                                            const model::ImageTowerOptions& options,
                                                            int64_t pixels_max);

// Puts images into prompts of the model; the options but for its vocabulary. REQUIRES: the tower,
// which is of the model's folder, outlives it.
std::unique_ptr<serve::ImagePrompts> make_image_prompts(model::ImageTower& tower,
                                                        const model::InferenceModel& model,
                                                        serve::ImagePrompts::Options options);

// Tells a model how the rows of images are that this tower reads. Fails with kUnsupported where
// they see one another or have places and it is not on processors of one machine, and
// kInvalidArgument where they are more than it takes at once. REQUIRES: the model runs nothing.
Status prepare_for_images(const model::ImageTower& tower, model::InferenceModel& model);

// Both for a command's model, in the memory that it leaves. Each image that is read is told, while
// it is on a terminal. Fails with kUnsupported where it reads no images, and as load_image_tower
// and prepare_for_images do.
Result<ImageModel> load_image_model(const LoadedModel& loaded, const ModelFlags& flags,
                                    int64_t pixels_max);

// Fails as read_file and decode_image do, and with kCancelled once a signal came.
Result<images::Image> read_image_file(const std::string& path);
Result<std::vector<images::Image>> read_image_files(std::span<const std::string> paths);

// Fails with kCancelled once a signal came: for ImagePrompts::read.
Status may_read_on();

}  // namespace jige::cli
