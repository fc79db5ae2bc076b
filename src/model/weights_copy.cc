#include "model/weights_copy.h"

#include "model/weights_layout.h"

namespace jige::model {
namespace {

// A copy: packed forms first, then the values that tasks read.
struct CopyPlaces {
  TensorView packed;
  std::vector<TensorView> values;
};

CopyPlaces place_copy(Placement& at, const Architecture& architecture,
                      const WeightsOptions& options, size_t node) {
  const Block& block = architecture.block(node);
  CopyPlaces places;
  const int64_t packed = packed_bytes(architecture, options, node);
  if (packed > 0) places.packed = at.take(DType::kU8, Shape{packed});
  // The types are those of the values themselves, measured without a buffer.
  Placement measure;
  const std::vector<TensorView> values = place_values(measure, architecture, options, node);
  const auto specs = block.params();
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool read = !specs[i].packed && values[i].shape.rank() > 0;
    places.values.push_back(read ? at.take(values[i].dtype, specs[i].shape) : TensorView{});
  }
  return places;
}

}  // namespace

int64_t copy_bytes(const Architecture& architecture, const WeightsOptions& options, size_t node) {
  Placement measure;
  place_copy(measure, architecture, options, node);
  return measure.peak_bytes();
}

int64_t gradient_bytes(const Architecture& architecture, const WeightsOptions& options,
                       size_t node) {
  Placement measure;
  place_gradients(measure, architecture, options, node);
  return measure.peak_bytes();
}

void copy_weights(Stream& stream, const TensorView& buffer, const ModelWeights& weights,
                  size_t node, CopyKind kind) {
  Placement at(buffer);
  const CopyPlaces places = place_copy(at, weights.architecture(), weights.options(), node);
  const BlockWeights& source = weights.block(node);
  if (places.packed) {
    stream.copy(places.packed.data, source.packed.data, places.packed.count(), kind);
  }
  for (size_t i = 0; i < places.values.size(); ++i) {
    const TensorView& value = places.values[i];
    if (!value) continue;
    stream.copy(value.data, source.params[i].value.data, dtype_bytes(value.dtype, value.count()),
                kind);
  }
}

BlockWeights copied_weights(const Architecture& architecture, const WeightsOptions& options,
                            size_t node, const TensorView& buffer, const TensorView& gradients) {
  CopyPlaces places;
  places.values.resize(architecture.block(node).params().size());
  if (buffer) {
    Placement at(buffer);
    places = place_copy(at, architecture, options, node);
  }
  BlockWeights weights;
  weights.packed = places.packed;
  weights.format = format_of(architecture, options, node);
  std::vector<TensorView> grads(places.values.size());
  if (gradients) {
    Placement gradients_at(gradients);
    grads = place_gradients(gradients_at, architecture, options, node);
  }
  for (size_t i = 0; i < places.values.size(); ++i) {
    weights.params.push_back({places.values[i], grads[i]});
  }
  return weights;
}

}  // namespace jige::model
