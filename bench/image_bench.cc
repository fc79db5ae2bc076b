// What a tower that reads images takes, beside its own matrix products.
//
// usage: image_bench [SIDE]... [--tower NAME] [--dtype f32|bf16] [--threads N] [--rounds N]
// [--json] A tower with random weights, in a folder that is written for it and removed (up to 1.4
// GB); square images of SIDE pixels, 1024 without any. Towers are those of
//   pixtral     Mistral Small 3.1 and Ministral 3 (24 layers of width 1024), without --tower
//   gemma3      Gemma 3 4B and larger (27 of 1152), in which images of all sides are one of 896
//   qwen2.5-vl  Qwen2.5-VL 7B (32 of 1280, of which 28 see windows)
//   qwen3-vl    Qwen3-VL 8B (27 of 1152)
//   smolvlm     SmolVLM 256M and 500M (12 of 768), in which square images of all sides are 17 tiles
// A round is one image and then the products of the layers alone, on the same shapes; the first
// does not count.
//   seconds      of an image, resizing included; the median of the rounds
//   arithmetic   all of its FLOP by these seconds, attention's included
//   products     seconds of the products of the layers, as a share of the seconds of the image
// --json: an object a side, on one line, in place of the table.
// Exit status: 0; 1 after an error.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "bench_flags.h"
#include "formats/safetensors_writer.h"
#include "machine.h"
#include "model/image_tower.h"
#include "products.h"
#include "timing.h"

namespace jige::bench {
namespace {

struct NamedTower {
  const char* name;
  const char* config;
};

constexpr NamedTower kNamedTowers[] = {{"pixtral", R"({
  "model_type": "mistral3", "spatial_merge_size": 2, "dtype": "bfloat16",
  "text_config": {"model_type": "mistral", "vocab_size": 131072, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 34, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072},
  "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 16, "intermediate_size": 4096, "patch_size": 14, "image_size": 1540,
    "hidden_act": "silu"}})"},
                                       {"gemma3", R"({
  "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
  "dtype": "bfloat16", "mm_tokens_per_image": 256,
  "text_config": {"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 2560,
    "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024},
  "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152,
    "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 4304,
    "patch_size": 14, "image_size": 896, "vision_use_head": false}})"},
                                       {"qwen2.5-vl", R"({
  "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"],
  "dtype": "bfloat16", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
  "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
  "max_position_embeddings": 128000, "rope_theta": 1000000.0,
  "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280,
    "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584, "patch_size": 14,
    "spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    "temporal_patch_size": 2}})"},
                                       {"qwen3-vl", R"({
  "model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"],
  "dtype": "bfloat16", "image_token_id": 151655,
  "text_config": {"model_type": "qwen3_vl_text", "vocab_size": 151936, "hidden_size": 4096,
    "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
    "rope_theta": 5000000.0, "rope_scaling": {"rope_type": "default", "mrope_interleaved": true,
    "mrope_section": [24, 20, 20]}},
  "vision_config": {"model_type": "qwen3_vl", "depth": 27, "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096,
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]}})"},
                                       {"smolvlm", R"({
  "model_type": "idefics3", "dtype": "bfloat16", "image_token_id": 49190, "scale_factor": 4,
  "text_config": {"model_type": "llama", "vocab_size": 49280, "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "max_position_embeddings": 8192, "rope_theta": 100000.0},
  "vision_config": {"hidden_size": 768, "num_attention_heads": 12, "image_size": 512,
    "patch_size": 16}})"}};

// Of the largest image that is measured, whatever larger ones a folder allows.
int64_t rows_needed(const formats::ImageConfig& config, const std::vector<int32_t>& sides) {
  int64_t rows = 1;
  for (const int32_t side : sides) {
    rows = std::max(rows, formats::image_layout(config, side, side).row_count());
  }
  return rows;
}

struct ImageBenchOptions : MachineOptions {
  std::vector<int32_t> sides = {1024};
  std::string tower = "pixtral";
  bool json = false;
};

// Removed with its content.
class FolderOfTower {
 public:
  FolderOfTower() : path_((std::filesystem::temp_directory_path() / "jige-bench-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) path_.clear();
  }
  ~FolderOfTower() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Writes config.json and random weights.
Status write_tower(const std::string& folder, const std::string& name) {
  const auto* const named = std::ranges::find(kNamedTowers, name, &NamedTower::name);
  if (named == std::end(kNamedTowers)) {
    return fail(Code::kInvalidArgument,
                "--tower {}: it is pixtral, gemma3, qwen2.5-vl, qwen3-vl or smolvlm", name);
  }
  JIGE_DO(write_file_atomic(folder + "/config.json", named->config));
  JIGE_TRY(const auto config, formats::load_image_config(folder));
  if (!config) return fail(Code::kInternal, "{}: no images", folder);
  JIGE_TRY(const auto parts, model::ImageParts::create(*config));
  int64_t most = 0;
  for (size_t part = 0; part < parts->count(); ++part) {
    for (const auto& spec : parts->params(part)) most = std::max(most, spec.shape.count());
  }
  Rng rng(derive_key(1, "bench tower"));
  std::vector<BFloat16> noise(static_cast<size_t>(most));
  for (BFloat16& one : noise) one = to_bfloat16(static_cast<float>(0.04 * rng.uniform() - 0.02));
  std::vector<formats::TensorSource> tensors;
  for (size_t part = 0; part < parts->count(); ++part) {
    for (const auto& spec : parts->params(part)) {
      tensors.push_back(formats::TensorSource::of(
          spec.name, TensorView::of(noise.data(), DType::kBF16, spec.stored_shape())));
    }
  }
  return formats::write_safetensors(folder + "/model.safetensors", tensors)
      .map([](const formats::WrittenFile&) {});
}

// The products of a layer of the tower.
std::vector<Product> products_of(const formats::ModelConfig& tower, DType type, int64_t patches) {
  const int64_t width = tower.hidden_size;
  const int64_t inner = (formats::has_gate(tower.activation) ? 2 : 1) * tower.ffn_size;
  std::vector<Product> products = {{type, Form::kForward, patches, width, 3 * width},
                                   {type, Form::kForward, patches, width, width},
                                   {type, Form::kForward, patches, width, inner},
                                   {type, Form::kForward, patches, tower.ffn_size, width}};
  return products;
}

Status measure(model::ImageTower& tower, Machine& machine, const ImageBenchOptions& options,
               int32_t side) {
  images::Image image = images::make_image(side, side);
  Rng rng(derive_key(2, "bench pixels"));
  for (uint8_t& byte : image.rgb) byte = static_cast<uint8_t>(rng.below(256));
  const formats::ImageConfig& config = tower.config();
  const formats::ImageLayout layout = formats::image_layout(config, side, side);
  const int64_t patches = layout.row_count() * config.merge * config.merge;
  JIGE_TRY(const auto parts, model::ImageParts::create(config));
  const int64_t layers = config.tower.layer_count;
  const int64_t tiles = layout.tile_count();
  std::vector<std::unique_ptr<OurProduct>> products;
  for (const Product& product : products_of(config.tower, options.dtype, patches / tiles)) {
    products.push_back(std::make_unique<OurProduct>(machine, product, layers));
  }
  std::vector<double> images_s, products_s;
  for (int round = 0; round <= options.rounds; ++round) {
    const StopWatch watch;
    JIGE_DO(tower.encode(image).map([](const auto&) {}));
    const double image_s = watch.seconds();
    const StopWatch other;
    for (int64_t call = 0; call < tiles * layers; ++call) {
      for (const auto& product : products) product->call(call % layers);
    }
    if (round == 0) continue;
    images_s.push_back(image_s);
    products_s.push_back(other.seconds());
  }
  const double seconds = median(images_s);
  if (options.json) {
    const Json told = {{"side", side},
                       {"patches", patches},
                       {"rows", layout.row_count()},
                       {"seconds", seconds},
                       {"flop", parts->encode_flops(patches)},
                       {"products_s", median(products_s)}};
    fmt::print("{}\n", dump_json(told));
    return {};
  }
  fmt::print("{:>5} x {:<5} {:>8} {:>6} {:>9.3f} {:>10.3f} TFLOP/s {:>8.0f} %\n", side, side,
             patches, layout.row_count(), seconds, parts->encode_flops(patches) / seconds / 1e12,
             100 * median(products_s) / seconds);
  return {};
}

void print_head(Machine& machine, const ImageBenchOptions& options) {
  fmt::print("{} threads, {}\n", machine.device.team().size(), dtype_info(options.dtype).name);
  fmt::print("{:>13} {:>8} {:>6} {:>9} {:>18} {:>10}\n", "pixels", "patches", "rows", "seconds",
             "arithmetic", "products");
}

Status run(const ImageBenchOptions& options) {
  const FolderOfTower folder;
  JIGE_DO(write_tower(folder.path(), options.tower));
  JIGE_TRY(const auto config, formats::load_image_config(folder.path()));
  Machine machine(options.threads);
  JIGE_TRY(const auto tower,
           model::ImageTower::load(
               folder.path(), *config, machine.device,
               {.compute = options.dtype, .rows_max = rows_needed(*config, options.sides)}));
  if (!options.json) print_head(machine, options);
  for (const int32_t side : options.sides) JIGE_DO(measure(*tower, machine, options, side));
  return {};
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::ImageBenchOptions options;
  options.rounds = 3;
  CLI::App app("Images through a tower with random weights", "image_bench");
  app.add_option("SIDE", options.sides, "pixels of square images")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--tower", options.tower, "whose: see the head of this file")
      ->capture_default_str();
  app.add_flag("--json", options.json, "one object a line");
  jige::bench::declare_machine(app, options);
  CLI11_PARSE(app, argc, argv);
  const jige::Status status = jige::bench::run(options);
  if (status) return 0;
  fmt::print(stderr, "image_bench: {}\n", status.error().message);
  return 1;
}
