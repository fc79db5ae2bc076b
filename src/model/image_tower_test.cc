// A tower beside what transformers makes of the same pictures (tests/tools/record_image_towers.py).
#include "model/image_tower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "model/model_test_support.h"
#include "tensor/cpu_device.h"

namespace jige::model {
namespace {

using testing::value_of;

constexpr const char* kTowers[] = {
    "mistral3",     "mistral3_silu",   "pixtral",  "gemma3",         "gemma3_wide",   "qwen2_vl",
    "qwen2_5_vl",   "qwen2_5_vl_new",  "qwen3_vl", "qwen3_5",        "qwen3_vl_moe",  "qwen3_5_moe",
    "idefics3",     "smolvlm",         "internvl", "internvl_rms",   "llava",         "llava_next",
    "llava_siglip", "llava_onevision", "gemma4",   "gemma4_clipped", "gemma4_unified"};
constexpr int kPictures = 6;

std::string tower_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + name;
}

formats::ImageConfig config_of_tower(const std::string& folder) {
  const auto config = value_of(formats::load_image_config(folder));
  EXPECT_TRUE(config) << folder;
  return config.value_or(formats::ImageConfig());
}

// A tower with a device of its own.
struct HeldTower {
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<ImageTower> tower;
};

HeldTower tower_on(const std::string& folder, int threads, const ImageTowerOptions& options = {}) {
  HeldTower held{.device = std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = threads}),
                 .tower = nullptr};
  held.tower = value_of(ImageTower::load(folder, config_of_tower(folder), *held.device, options));
  return held;
}

// What was recorded of a tower.
class Recorded {
 public:
  explicit Recorded(const std::string& folder)
      : file_(value_of(formats::open_safetensors(folder + "/expected.safetensors"))) {}

  TensorView view(const std::string& kind, int picture) const {
    return value_of(file_.view(kind + "." + std::to_string(picture)));
  }
  images::Image picture(int i) const {
    const TensorView pixels = view("image", i);
    const auto* bytes = pixels.as<uint8_t>();
    return {static_cast<int32_t>(pixels.shape[1]), static_cast<int32_t>(pixels.shape[0]),
            std::vector<uint8_t>(bytes, bytes + pixels.count())};
  }
  std::span<const float> numbers(const std::string& kind, int picture) const {
    const TensorView found = view(kind, picture);
    return {found.as<float>(), static_cast<size_t>(found.count())};
  }

 private:
  formats::TensorFile file_;
};

images::Image noisy_image(int32_t width, int32_t height) {
  images::Image image = images::make_image(width, height);
  uint32_t state = 7;
  for (uint8_t& byte : image.rgb) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return image;
}

double farthest(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(double(a[i]) - double(b[i])));
  }
  return most;
}

formats::ImageLayout layout_of(const formats::ImageConfig& config, const images::Image& image) {
  return formats::image_layout(config, image.width, image.height);
}

TEST(ImageTower, MakesTheRowsThatTransformersMakes) {
  for (const std::string name : kTowers) {
    const std::string folder = tower_folder(name);
    const Recorded recorded(folder);
    const HeldTower held = tower_on(folder, 3);
    const formats::ImageConfig& config = held.tower->config();
    for (int i = 0; i < kPictures; ++i) {
      SCOPED_TRACE(fmt::format("{} {}", name, i));
      const images::Image image = recorded.picture(i);
      const auto rows = value_of(
          held.tower->encode_patches(recorded.numbers("rows", i), layout_of(config, image)));
      EXPECT_LT(farthest(rows, recorded.numbers("features", i)), 1e-4);
      EXPECT_LT(farthest(value_of(held.tower->encode(image)), recorded.numbers("features", i)),
                1e-4);
    }
  }
}

// All of a picture as one tile.
TEST(ImageTower, MakesTheRowsOfPicturesThatAreNotCut) {
  for (const std::string name : {"idefics3", "smolvlm"}) {
    const std::string folder = tower_folder(name);
    const Recorded recorded(folder);
    formats::ImageConfig config = config_of_tower(folder);
    config.cuts = false;
    CpuDevice device({.thread_count = 2});
    const auto tower = value_of(ImageTower::load(folder, config, device));
    EXPECT_EQ(tower->rows_max(), config.tile_patches_max() / (config.merge * config.merge));
    for (int i = 0; i < kPictures; ++i) {
      EXPECT_LT(
          farthest(value_of(tower->encode(recorded.picture(i))), recorded.numbers("whole", i)),
          1e-4)
          << name << " " << i;
    }
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Of which others were before them. Towers have two and five threads with either type in turn.
TEST(ImageTower, GivesTheSameBitsOnAnyThreadsAndBehindOtherImages) {
  int turn = 0;
  for (const std::string name : kTowers) {
    const std::string folder = tower_folder(name);
    const Recorded recorded(folder);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const int others = (turn / 2 + turn) % 2 == 0 ? 2 : 5;
      ++turn;
      std::vector<std::vector<float>> in_order;
      const HeldTower first = tower_on(folder, 1, {.compute = compute});
      for (int i = 0; i < kPictures; ++i) {
        in_order.push_back(value_of(first.tower->encode(recorded.picture(i))));
      }
      SCOPED_TRACE(fmt::format("{} on {} threads", name, others));
      const HeldTower held = tower_on(folder, others, {.compute = compute});
      for (const int i : {3, 0, 5, 1, 4, 2, 3}) {
        EXPECT_TRUE(same_bits(value_of(held.tower->encode(recorded.picture(i))),
                              in_order[static_cast<size_t>(i)]))
            << i;
      }
    }
  }
}

// An image that is read whenever another asks whether to go on: both have the rows that they have
// alone.
TEST(ImageTower, ReadsASmallImageWhileItReadsALargeOne) {
  for (const std::string name : kTowers) {
    SCOPED_TRACE(name);
    const HeldTower held = tower_on(tower_folder(name), 2);
    const formats::ImageConfig& config = held.tower->config();
    // Whose images, or tiles, have one size, or about one area.
    if (config.family == formats::ImageFamily::kGemma3 || config.tile_side > 0) continue;
    if (config.family == formats::ImageFamily::kGemma4) continue;
    const auto side = [&](int64_t steps) { return static_cast<int32_t>(steps * config.step()); };
    const int64_t square = static_cast<int64_t>(std::sqrt(static_cast<double>(config.pixels_max)));
    const images::Image large =
        noisy_image(static_cast<int32_t>(square > 0 ? square : config.width_max),
                    static_cast<int32_t>(square > 0 ? square : config.height_max));
    const bool is_largest =
        formats::image_layout(config, large.width, large.height).row_count() == config.rows_max();
    const int64_t aside_rows = held.tower->aside_patches_max() / (config.merge * config.merge);
    ASSERT_GE(aside_rows, 2);
    const images::Image small = noisy_image(side(aside_rows), side(1));
    const images::Image too_large = noisy_image(side(aside_rows / 2 + 1), side(2));
    const std::vector<float> small_rows = value_of(held.tower->encode(small));
    int asides = 0;
    const auto with_asides = held.tower->encode(large, [&]() -> Status {
      const auto aside = value_of(held.tower->encode(small));
      EXPECT_TRUE(same_bits(aside, small_rows));
      // What is read before the large one has its rows may be of any size.
      if (++asides > 1 && is_largest) {
        EXPECT_FALSE(held.tower->encode(too_large));
      }
      return {};
    });
    EXPECT_EQ(asides, 1 + config.tower.layer_count);
    EXPECT_TRUE(same_bits(value_of(with_asides), value_of(held.tower->encode(large))));
    const formats::ImageLayout layout =
        formats::image_layout(config, too_large.width, too_large.height);
    EXPECT_EQ(std::ssize(value_of(held.tower->encode(too_large))),
              config.levels() * layout.row_count() * held.tower->width());
  }
}

TEST(ImageTower, OfSixteenBitsIsNearThatOfThirtyTwo) {
  for (const std::string name : kTowers) {
    const std::string folder = tower_folder(name);
    const Recorded recorded(folder);
    const HeldTower held = tower_on(folder, 2, {.compute = DType::kBF16});
    EXPECT_EQ(held.tower->compute(), DType::kBF16);
    for (int i = 0; i < kPictures; ++i) {
      const std::span<const float> expected = recorded.numbers("features", i);
      const auto rows = value_of(held.tower->encode(recorded.picture(i)));
      ASSERT_EQ(rows.size(), expected.size());
      double error = 0, size = 0;
      for (size_t j = 0; j < rows.size(); ++j) {
        error += std::pow(double(rows[j]) - double(expected[j]), 2);
        size += std::pow(double(expected[j]), 2);
      }
      EXPECT_LT(std::sqrt(error / size), 0.03) << name << " " << i;
      EXPECT_GT(error, 0);
    }
  }
}

TEST(ImageTower, TakesExactlyThePlannedMemory) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const std::string name : kTowers) {
      const std::string folder = tower_folder(name);
      const auto parts = value_of(ImageParts::create(config_of_tower(folder)));
      const ImageTowerMemory memory = image_tower_memory(*parts, compute);
      const int64_t cap = memory.total_bytes();
      const HeldTower held = tower_on(folder, 2, {.compute = compute, .memory_bytes_max = cap});
      // As large as there is.
      const formats::ImageConfig& config = held.tower->config();
      const int64_t numbers = config.patches_max() * 3 * config.patch_size * config.patch_size;
      const std::vector<float> patches(static_cast<size_t>(numbers), 0.5f);
      const int64_t tile_rows = config.tile_patches_max() / (config.merge * config.merge);
      const int packed = config.packs_rows() ? 1 : 0;
      const formats::ImageLayout layout{
          .token_rows = 1,
          .token_columns = static_cast<int32_t>(tile_rows),
          .tile_rows = 1,
          .tile_columns = static_cast<int32_t>(config.tiles_max() - 1),
          .kept_rows = packed,
          .kept_columns = packed,
          .packed_rows = packed,
          .packed_columns = packed};
      EXPECT_EQ(std::ssize(value_of(held.tower->encode_patches(patches, layout))),
                config.levels() * layout.row_count() * held.tower->width());
      EXPECT_LE(layout.row_count(), config.rows_max());
      EXPECT_EQ(held.tower->peak_bytes(), cap);
      CpuDevice device;
      const auto refused = ImageTower::load(folder, config, device,
                                            {.compute = compute, .memory_bytes_max = cap - 1});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::kExhausted);
      const bool smaller = config.family != formats::ImageFamily::kGemma3 && config.tile_side == 0;
      EXPECT_EQ(refused.error().message.find("--image-pixels") != std::string::npos, smaller);
    }
  }
}

TEST(ImageTower, CountsParametersAndOperations) {
  const auto parts = value_of(ImageParts::create(config_of_tower(tower_folder("mistral3"))));
  // Width 24, patches of 48 numbers, heads of 12, feed-forward 20; rows of 32.
  const int64_t layer = 4 * 24 * 24 + 3 * 24 * 20 + 2 * 24;
  const int64_t ends = 24 * 48 + 24 + 24 + 24 * 96 + 32 * 24 + 32 * 32;
  EXPECT_EQ(parts->parameter_count(), 2 * layer + ends);
  const double products =
      40 * (24 * 48 + 2 * (4 * 24 * 24 + 3 * 24 * 20)) + 10 * (24 * 96 + 32 * 24 + 32 * 32);
  const double attention = 2 * 2 * 40 * 40 * 24;
  EXPECT_DOUBLE_EQ(parts->encode_flops(40), 2 * products + 2 * attention);
}

// Tiles see their own patches alone, and their memory is that of one.
TEST(ImageTower, ReadsOneTileAtATime) {
  const std::string folder = tower_folder("smolvlm");
  const formats::ImageConfig config = config_of_tower(folder);
  const auto parts = value_of(ImageParts::create(config));
  ASSERT_EQ(config.tiles_max(), 5);
  const int64_t patches = config.tile_patches_max();
  EXPECT_DOUBLE_EQ(parts->encode_flops(5 * patches), 5 * parts->encode_flops(patches));
  formats::ImageConfig whole = config;
  whole.cuts = false;
  const auto whole_parts = value_of(ImageParts::create(whole));
  EXPECT_EQ(image_tower_memory(*parts, DType::kF32).encoding_bytes,
            image_tower_memory(*whole_parts, DType::kF32).encoding_bytes);
  // A context that does not hold all tiles still holds one.
  CpuDevice device;
  const int64_t rows = config.rows_max();
  const auto tower = value_of(ImageTower::load(folder, config, device, {.rows_max = rows - 1}));
  const Recorded recorded(folder);
  EXPECT_FALSE(tower->encode(recorded.picture(0)));
  EXPECT_LT(farthest(value_of(tower->encode(recorded.picture(1))), recorded.numbers("features", 1)),
            1e-4);
}

// The folder with its tensors by other names, or without some.
class RenamedTower {
 public:
  explicit RenamedTower(const std::string& name) : source_(tower_folder(name)) {}
  std::string write(const std::function<std::string(const std::string&)>& rename) const {
    for (const char* file : {"config.json", "processor_config.json", "preprocessor_config.json"}) {
      std::error_code ignored;
      std::filesystem::copy(source_ + "/" + file, folder_ / file,
                            std::filesystem::copy_options::overwrite_existing, ignored);
    }
    const auto stored = value_of(formats::open_safetensors(source_ + "/model.safetensors"));
    std::vector<formats::TensorSource> tensors;
    for (const formats::StoredTensor& tensor : stored.tensors()) {
      const std::string as = rename(tensor.name);
      if (as.empty()) continue;
      tensors.push_back(formats::TensorSource::of(as, value_of(stored.view(tensor.name))));
    }
    EXPECT_TRUE(formats::write_safetensors(folder_ / "model.safetensors", tensors));
    return folder_ / "";
  }

 private:
  std::string source_;
  testing::TempFolder folder_;
};

TEST(ImageTower, FindsTensorsByTheNamesOfNewerFolders) {
  const RenamedTower renamed("mistral3_silu");
  const std::string folder = renamed.write([](const std::string& name) {
    const bool reads = name.starts_with("vision_tower.") || name.starts_with("multi_modal");
    return reads ? "model." + name : "";
  });
  const Recorded recorded(tower_folder("mistral3_silu"));
  const HeldTower held = tower_on(folder, 2);
  EXPECT_LT(
      farthest(value_of(held.tower->encode(recorded.picture(4))), recorded.numbers("features", 4)),
      1e-4);
}

// Gemma 3 as published, with names of before transformers 5.
TEST(ImageTower, FindsTensorsByTheNamesOfOlderFolders) {
  const RenamedTower renamed("gemma3");
  const std::string_view tower = "vision_tower.";
  const std::string folder = renamed.write([&](const std::string& name) {
    if (name.starts_with("multi_modal")) return name;
    if (!name.starts_with(tower)) return std::string();
    return std::string(tower) + "vision_model." + name.substr(tower.size());
  });
  const Recorded recorded(tower_folder("gemma3"));
  const HeldTower held = tower_on(folder, 2);
  EXPECT_LT(
      farthest(value_of(held.tower->encode(recorded.picture(4))), recorded.numbers("features", 4)),
      1e-4);
}

Status load_tower(const std::string& folder) {
  CpuDevice device;
  return ImageTower::load(folder, config_of_tower(folder), device).map([](const auto&) {});
}

TEST(ImageTower, NamesTensorsThatAreMissingOrOfAnotherShape) {
  const RenamedTower renamed("mistral3_silu");
  for (const std::string missing : {"vision_tower.patch_conv.weight", "vision_tower.ln_pre.weight",
                                    "vision_tower.transformer.layers.1.feed_forward.up_proj.weight",
                                    "multi_modal_projector.patch_merger.merging_layer.weight",
                                    "multi_modal_projector.linear_2.bias"}) {
    const Status status = load_tower(renamed.write(
        [&](const std::string& name) { return name == missing ? std::string() : name; }));
    ASSERT_FALSE(status) << missing;
    EXPECT_EQ(status.error().code, Code::kNotFound);
    EXPECT_NE(status.error().message.find(missing), std::string::npos) << status.error().message;
  }
  // The last of three layers is not read.
  EXPECT_TRUE(load_tower(renamed.write([](const std::string& name) {
    return name.starts_with("vision_tower.transformer.layers.2.") ? std::string() : name;
  })));
  const std::string conv = "vision_tower.patch_conv.weight";
  const std::string linear = "multi_modal_projector.linear_1.weight";
  const Status status = load_tower(renamed.write([&](const std::string& name) {
    return name == conv ? linear : name == linear ? conv : name;
  }));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCorrupt);
  EXPECT_NE(status.error().message.find("[32, 16]"), std::string::npos) << status.error().message;
}

TEST(ImageTower, RefusesPatchesThatAreNotThoseOfTheirImage) {
  const HeldTower held = tower_on(tower_folder("mistral3"), 1);
  const auto refused = [&](size_t count, const formats::ImageLayout& layout) {
    const std::vector<float> patches(count, 0.0f);
    const auto rows = held.tower->encode_patches(patches, layout);
    return !rows && rows.error().code == Code::kInvalidArgument;
  };
  const size_t row = 4 * 48;  // of four patches
  EXPECT_TRUE(refused(row + 1, {8, 8, 1, 1}));
  EXPECT_TRUE(refused(row, {8, 16, 2, 1}));
  EXPECT_TRUE(refused(0, {0, 0, 0, 0}));
  EXPECT_TRUE(refused(row, {8, 8, -1, -1}));
  EXPECT_TRUE(refused(row * 65, {8, 8 * 65, 65, 1}));
  EXPECT_FALSE(refused(row * 64, {8, 8 * 64, 64, 1}));
  EXPECT_FALSE(held.tower->encode({}));
  EXPECT_FALSE(held.tower->encode({2, 2, std::vector<uint8_t>(11)}));
}

TEST(ImageTower, EndsWhereItIsTold) {
  const std::string folder = tower_folder("mistral3");
  const Recorded recorded(folder);
  const HeldTower held = tower_on(folder, 2);
  int asked = 0;
  const auto rows = held.tower->encode(recorded.picture(3), [&]() -> Status {
    if (++asked < 3) return {};
    return fail(Code::kCancelled, "enough");
  });
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message, "enough");
  EXPECT_EQ(asked, 3);
  EXPECT_LT(
      farthest(value_of(held.tower->encode(recorded.picture(3))), recorded.numbers("features", 3)),
      1e-4);
}

}  // namespace
}  // namespace jige::model
