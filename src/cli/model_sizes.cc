#include "cli/model_sizes.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace jige::cli {

const std::vector<ModelSize>& model_sizes() {
  static const std::vector<ModelSize> sizes = {
      {"tiny", 128, 4, 4, 352, 256, 2048},      {"small", 256, 6, 8, 704, 512, 4096},
      {"15m", 288, 6, 6, 768, 1024, 32000},     {"42m", 512, 8, 8, 1376, 1024, 32000},
      {"110m", 768, 12, 12, 2048, 1024, 32000},
  };
  return sizes;
}

std::vector<std::string> model_size_names() {
  std::vector<std::string> names;
  for (const ModelSize& size : model_sizes()) names.emplace_back(size.name);
  return names;
}

const ModelSize& base_size(const ModelShape& shape) {
  const auto& sizes = model_sizes();
  const auto found = std::find_if(sizes.begin(), sizes.end(),
                                  [&](const ModelSize& size) { return shape.size == size.name; });
  JIGE_CHECK(found != sizes.end(), "size {}", shape.size);
  return *found;
}

Result<formats::ModelConfig> make_llama_config(const ModelShape& shape, int64_t vocab_size) {
  const ModelSize& size = base_size(shape);
  const auto or_else = [](int64_t given, int64_t fallback) { return given > 0 ? given : fallback; };
  formats::ModelConfig config;
  config.family = formats::Family::kLlama;
  config.vocab_size = vocab_size;
  config.hidden_size = or_else(shape.width, size.width);
  config.layer_count = or_else(shape.layers, size.layers);
  config.head_count = or_else(shape.heads, size.heads);
  config.kv_head_count = or_else(shape.kv_heads, config.head_count);
  config.ffn_size =
      or_else(shape.ffn, shape.width > 0 ? (8 * shape.width / 3 + 15) / 16 * 16 : size.ffn);
  config.context_max = or_else(shape.context, size.context);
  config.tied_embeddings = true;
  if (config.hidden_size % config.head_count != 0 ||
      config.hidden_size / config.head_count % 2 != 0) {
    return fail(Code::kInvalidArgument,
                "--width {} cannot be shared by --heads {}: a head needs an "
                "even number of columns",
                config.hidden_size, config.head_count);
  }
  if (config.head_count % config.kv_head_count != 0) {
    return fail(Code::kInvalidArgument, "--kv-heads {} does not divide --heads {}",
                config.kv_head_count, config.head_count);
  }
  config.head_dim = config.hidden_size / config.head_count;
  return config;
}

}  // namespace jige::cli
