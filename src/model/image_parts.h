// The ends of a tower that reads images: what makes its residual stream of patches, and what makes
// rows of the language model of that. Each family has its own (image_parts_*.cc); the layers
// between them are TransformerLayers.
//
// Shapes: T patches, K numbers of one, D width of the tower, m² patches that become one row, R =
// T/m² rows, W width of the language model.
//   entry      dst [T, D] f32 of src [T, K] f32, row by row of the image; in some families one row
//              more behind them (ImageConfig::class_rows)
//   projector  dst [R, W] f32 of src [T, D] f32, whose m² patches of a row stand one behind the
//              other
// For inference alone. As blocks (block.h) they own neither memory nor parameters. Threads: const;
// tasks are asynchronous on the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/image_config.h"
#include "model/block.h"
#include "model/layer_names.h"
#include "model/projection.h"

namespace jige::model {

// The memory and the stream of a task, as in BlockContext.
struct ImageTask {
  Stream& stream;
  DType compute = DType::kF32;
  TensorView workspace;       // u8, workspace_bytes(T)
  int64_t patch_columns = 1;  // of the image, for an entry
  size_t level = 0;           // of its rows, for a projector (ImageConfig::levels)
};

class ImagePart {
 public:
  virtual ~ImagePart() = default;

  std::span<const ParamSpec> params() const { return params_; }
  int64_t packed_bytes(DType compute) const;
  void pack(Stream& stream, const BlockWeights& weights, DType compute) const;
  virtual int64_t workspace_bytes(int64_t patch_count, DType compute) const = 0;
  virtual double forward_flops(double patch_count) const = 0;
  virtual void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                       const TensorView& dst) const = 0;

 protected:
  virtual std::vector<const Projection*> projections() const = 0;
  // Multiplications of all of these for a row.
  double elements() const;

  std::vector<ParamSpec> params_;
  PackedSizes packed_;
};

// The first parameter of an entry is the matrix [D, K] that patches are multiplied with.
std::unique_ptr<const ImagePart> make_image_entry(const formats::ImageConfig& config);
// Where rows are packed (ImageConfig::packs_rows) its last parameter is the row behind a line, [W].
std::unique_ptr<const ImagePart> make_image_projector(const formats::ImageConfig& config);
// By the first half of a head's pairs patches turn by their row, by the others by their column (the
// other way where halves are apart): so much each for one.
std::vector<double> image_frequencies(const formats::ImageConfig& config);
// Of a layer of the tower.
LayerNames image_layer_names(const formats::ImageConfig& config, int64_t index);

}  // namespace jige::model
