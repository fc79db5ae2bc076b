// LayerRange: which blocks of a model are held here, where others hold the rest.
//
// A model whose layers are divided among machines is cut between layers: each holds some that
// follow one another, and one of them, which also reads tokens and gives logits, the ends
// (embedding and head) besides. The usual model holds everything.
// Threads: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "formats/model_config.h"
#include "model/architecture.h"

namespace jige::model {

// Whether a model's layers may be held in several places: not where some of them read the keys that
// others have written, nor where texts run whole.
inline bool can_divide_layers(const formats::ModelConfig& config) {
  return config.shared_kv_layers == 0 && !config.looks_ahead;
}

struct LayerRange {
  int64_t begin = 0;
  int64_t end = INT64_MAX;  // beyond the last layer: up to it
  bool ends = true;         // embedding and head

  bool is_whole(const Architecture& architecture) const {
    return ends && begin == 0 && end >= architecture.config().layer_count;
  }
  bool holds_layer(int64_t layer) const { return layer >= begin && layer < end; }
  // A node of the graph: the embedding, a layer, or the head.
  bool holds_node(const Architecture& architecture, size_t node) const {
    if (node == 0 || node == architecture.head_node()) return ends;
    return holds_layer(static_cast<int64_t>(node) - 1);
  }
  // The nodes of its layers.
  size_t node_begin() const { return static_cast<size_t>(begin) + 1; }
  size_t node_end(const Architecture& architecture) const {
    const auto layers = static_cast<int64_t>(architecture.head_node()) - 1;
    return static_cast<size_t>(std::min(end, layers)) + 1;
  }
};

}  // namespace jige::model
