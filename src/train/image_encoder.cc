#include "train/image_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "images/decode.h"
#include "train/option_flags.h"

namespace jige::train {
namespace {

Result<EncodedImage> read_one(const std::string& named, const std::string& folder,
                              const std::string& where) {
  EncodedImage read;
  JIGE_TRY(read.bytes, read_image_source(named, folder, where, read.image.source));
  const std::string& file = read.image.source.file;
  const std::string place = file.empty() ? where : fmt::format("{}: {}", where, file);
  JIGE_TRY(const images::Image image,
           images::decode_image(std::as_bytes(std::span(read.bytes)), place));
  read.image.width = image.width;
  read.image.height = image.height;
  if (!file.empty()) read.bytes = {};
  return read;
}

}  // namespace

Result<std::vector<EncodedImage>> read_images(const ImageMessages& messages,
                                              const std::string& folder, const std::string& where) {
  std::vector<EncodedImage> images;
  for (size_t i = 0; i < messages.sources.size(); ++i) {
    auto image =
        read_one(messages.sources[i], folder, fmt::format("{}: {}", where, messages.places[i]));
    if (!image) {
      image.error().message += fmt::format(
          "; put the image right (paths begin in the folder of the data), or leave such lines out "
          "with {}",
          flag_of("data.skip_bad"));
      return tl::unexpected(std::move(image.error()));
    }
    images.push_back(std::move(*image));
  }
  return images;
}

Status place_images(const ImageEncoding& encoding, std::vector<EncodedImage>& images,
                    std::vector<int32_t>& ids, std::vector<uint8_t>& learned,
                    const std::string& where) {
  const formats::ImageConfig& config = encoding.config;
  const auto places = std::ranges::count(ids, config.placeholder_id);
  if (places != std::ssize(images)) {
    return fail(Code::kInvalidArgument,
                "{}: the chat template writes {} places for images where the messages have {}; it "
                "may not show those of some roles",
                where, places, images.size());
  }
  if (images.empty()) return {};
  std::vector<int32_t> placed;
  std::vector<uint8_t> mask;
  auto image = images.begin();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != config.placeholder_id) {
      placed.push_back(ids[i]);
      mask.push_back(learned[i]);
      continue;
    }
    const auto layout = formats::image_layout(config, image->image.width, image->image.height);
    const std::vector<int32_t> tokens = formats::image_tokens(config, layout);
    image->image.token = std::ssize(placed);
    image->image.count = static_cast<int32_t>(tokens.size());
    for (const int32_t token : tokens) {
      placed.push_back(token == formats::kImageRow ? config.token_of_row() : token);
    }
    mask.resize(placed.size(), 0);
    ++image;
  }
  const int64_t inputs = std::ssize(placed) - 1;
  if (inputs > encoding.context) {
    return fail(Code::kInvalidArgument,
                "{}: has {} tokens with its images ({} without), and the context holds {}; a "
                "document with images is not cut: raise {} (and {}), make images smaller with {}, "
                "or leave such lines out with {}",
                where, inputs + 1, std::ssize(ids) - places, encoding.context + 1,
                flag_of("context"), flag_of("micro_batch_tokens"), flag_of("image_pixels"),
                flag_of("data.skip_bad"));
  }
  ids = std::move(placed);
  learned = std::move(mask);
  return {};
}

}  // namespace jige::train
