// StreamLayout: the columns of what flows between blocks. The residual stream comes first; where a
// model has them, behind it what several layers read:
//
//   x [N·D] | keys and values that sliding layers share, then those that the others share |
//   the inputs of layer 0, 1, … L-1 (formats::LayerInputConfig)
//
// all f32, N being 1 or the streams of AltUp, of which the first comes first. A layer hands on what
// layers behind it read. Keys and values are there in training alone; inference reads them from the
// cache of the layer that gives them. The gradients of a stream have the same columns: a layer adds
// to those of keys and values, and stores that of its input. Threads: values.
#pragma once

#include <cstdint>

#include "formats/model_config.h"
#include "tensor/view.h"

namespace jige::model {

class StreamLayout {
 public:
  StreamLayout() = default;
  explicit StreamLayout(const formats::ModelConfig& config);

  int64_t columns() const { return inputs_begin() + layer_count_ * input_size_; }
  bool plain() const { return columns() == width_; }

  TensorView residual(const TensorView& rows) const {
    return rows ? rows.column_range(0, width_) : rows;
  }
  // All streams, which are what the head reads; one of them; and those behind the first.
  int64_t residual_columns() const { return stream_count_ * width_; }
  TensorView streams(const TensorView& rows) const {
    return rows ? rows.column_range(0, residual_columns()) : rows;
  }
  TensorView stream(const TensorView& rows, int64_t i) const {
    return rows.column_range(i * width_, (i + 1) * width_);
  }
  TensorView other_streams(const TensorView& rows) const {
    return rows.column_range(width_, residual_columns());
  }
  int64_t stream_count() const { return stream_count_; }
  // Keys, then values, of layers with the window or of those without.
  TensorView keys(const TensorView& rows, bool window) const {
    const int64_t begin = residual_columns() + (window ? 0 : sliding_keys_);
    return rows.column_range(begin, begin + (window ? sliding_keys_ : full_keys_));
  }
  // The input of a layer; of all of them from this one on.
  TensorView input(const TensorView& rows, int64_t layer) const {
    return rows.column_range(input_begin(layer), input_begin(layer + 1));
  }
  TensorView inputs_from(const TensorView& rows, int64_t layer) const {
    return rows.column_range(input_begin(layer), columns());
  }
  bool has_inputs() const { return input_size_ > 0; }

 private:
  int64_t inputs_begin() const { return residual_columns() + sliding_keys_ + full_keys_; }
  int64_t input_begin(int64_t layer) const { return inputs_begin() + layer * input_size_; }

  int64_t width_ = 0;
  int64_t stream_count_ = 1;
  int64_t sliding_keys_ = 0;  // and values
  int64_t full_keys_ = 0;
  int64_t input_size_ = 0;
  int64_t layer_count_ = 0;
};

}  // namespace jige::model
