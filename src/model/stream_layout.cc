#include "model/stream_layout.h"

#include <algorithm>

namespace jige::model {

StreamLayout::StreamLayout(const formats::ModelConfig& config)
    : width_(config.hidden_size),
      stream_count_(std::max<int64_t>(config.altup.streams, 1)),
      input_size_(config.layer_inputs.size),
      layer_count_(config.layer_count) {
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    if (!formats::gives_keys(config, layer)) continue;
    const formats::HeadShape heads = formats::head_shape(config, layer);
    int64_t& columns = formats::has_window(config, layer) ? sliding_keys_ : full_keys_;
    columns = 2 * heads.kv_head_count * heads.head_dim;
  }
}

}  // namespace jige::model
