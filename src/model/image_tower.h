// ImageTower: the part of a folder's model that reads images, loaded on a device, which makes rows
// of the language model's width of one image at a time.
//
//   JIGE_TRY(const auto config, formats::load_image_config(folder));
//   JIGE_TRY(auto tower, ImageTower::load(folder, *config, device, {}));
//   JIGE_TRY(const auto rows, tower->encode(image));
//
// An image is resized (formats::image_layout), its patches pass the tower's layers (image_parts.h
// and transformer_layer.h), and patches side by side become one row. Rows are those of
// formats::image_tokens, in their order; where they come between tokens nobody here knows. An image
// that is cut into tiles passes as so many images, one after the other; some families put their
// rows together again (image_packing.h). While it asks whether to go on, one small image may be
// read aside: large ones take so long that small ones should not wait for them. Memory is fixed at
// load, for the largest image or tile that there may be (image_tower_memory gives its size
// beforehand), but for the pixels and the rows that are returned. The bits of rows depend on
// neither threads nor images before. On CPUs. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/go_on.h"
#include "base/result.h"
#include "formats/image_config.h"
#include "formats/tensor_folder.h"
#include "images/image.h"
#include "model/block.h"
#include "model/image_order.h"
#include "model/image_parts.h"
#include "model/transformer_layer.h"
#include "tensor/arena.h"
#include "tensor/device.h"

namespace jige::model {

// The parts of a tower, without weights and memory: part 0 is the entry, then come the layers, last
// the projector. Threads: const.
class ImageParts {
 public:
  // Fails with kUnsupported on heads that are too wide.
  static Result<std::unique_ptr<const ImageParts>> create(const formats::ImageConfig& config);

  const formats::ImageConfig& config() const { return config_; }
  const ImagePart& entry() const { return *entry_; }
  const std::vector<std::unique_ptr<TransformerLayer>>& layers() const { return layers_; }
  const ImagePart& projector() const { return *projector_; }

  size_t count() const { return layers_.size() + 2; }
  std::span<const ParamSpec> params(size_t part) const;
  int64_t packed_bytes(size_t part, DType compute) const;
  void pack(size_t part, Stream& stream, const BlockWeights& weights, DType compute) const;
  int64_t parameter_count() const;
  // Of any part.
  int64_t workspace_bytes(int64_t patch_count, DType compute) const;
  // Floating-point operations for an image of so many patches.
  double encode_flops(int64_t patch_count) const;

 private:
  explicit ImageParts(const formats::ImageConfig& config);

  formats::ImageConfig config_;
  std::unique_ptr<const ImagePart> entry_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<const ImagePart> projector_;
};

// Whether a folder holds every tensor of the tower; fails as check_params (param_loader.h) does.
Status check_image_weights(const ImageParts& parts, const formats::TensorFolder& files);

// The type that a tower of these files computes in where none is asked for: bf16 where its weights
// are stored in 16 bits, else f32. Fails as check_params does.
Result<DType> image_tower_dtype(const ImageParts& parts, const formats::TensorFolder& files);

// What a tower takes of its arena; encoding is for the largest image, of up to so many rows of the
// language model.
struct ImageTowerMemory {
  int64_t weights_bytes = 0;
  int64_t encoding_bytes = 0;
  int64_t total_bytes() const { return weights_bytes + encoding_bytes; }
};
ImageTowerMemory image_tower_memory(const ImageParts& parts, DType compute,
                                    int64_t rows_max = INT64_MAX);

struct ImageTowerOptions {
  std::optional<DType> compute;                // f32 or bf16; empty: image_tower_dtype()
  int64_t memory_bytes_max = kUnlimitedBytes;  // cap of the arena
  int64_t rows_max = INT64_MAX;                // of an image that is read, as a context holds them
};

class ImageTower {
 public:
  // Reads the folder's weights. Fails with kUnsupported on a device that is no CPU, kExhausted
  // where memory or the cap is too small, and as load_model_config, TensorFolder::open and
  // check_image_weights do. REQUIRES: the device outlives it.
  static Result<std::unique_ptr<ImageTower>> load(const std::string& folder,
                                                  const formats::ImageConfig& config,
                                                  Device& device,
                                                  const ImageTowerOptions& options = {});

  const formats::ImageConfig& config() const { return parts_->config(); }
  // Of a row: that of the language model.
  int64_t width() const { return config().text_width; }
  DType compute() const { return compute_; }
  int64_t peak_bytes() const { return arena_.peak_bytes(); }
  // Of an image that is read.
  int64_t rows_max() const { return rows_max_; }
  // Of an image that is encoded by what another asks whether to go on, at most: there is room for
  // it behind the patches of the largest.
  int64_t aside_patches_max() const;

  // The rows of an image, [levels, row_count, width] f32. `go_on` is asked between layers. Fails
  // with what it gives, and with kInvalidArgument on an image without pixels, or of more than
  // rows_max() rows, and on one aside that is too large.
  Result<std::vector<float>> encode(const images::Image& image, const GoOn& go_on = {});

  // The same of the patches of an image that was resized, [patches, 3 p²] as images::patch_rows
  // gives them, those of its tiles one behind the other. Fails with kInvalidArgument where they are
  // not those of the layout.
  Result<std::vector<float>> encode_patches(std::span<const float> patches,
                                            const formats::ImageLayout& layout,
                                            const GoOn& go_on = {});

 private:
  ImageTower(Device& device, std::unique_ptr<const ImageParts> parts, DType compute,
             const ImageTowerOptions& options);
  Status allocate();
  // That are read at a time.
  int64_t patches_max() const;
  // Of the largest image and one aside.
  int64_t stream_rows() const;
  Status load_weights(const formats::TensorFolder& files);
  Status check_layout(const formats::ImageLayout& layout) const;
  // The patches of a tile, [patches, 3 p²].
  using TilePatches = std::function<Result<std::vector<float>>(int64_t tile)>;
  // Encodes one tile after the other.
  Result<std::vector<float>> encode_tiles(const formats::ImageLayout& layout,
                                          const TilePatches& patches, const GoOn& go_on);
  // The angles of the patches of an image, a row each from `begin` on, as layers have them.
  void put_angles(int64_t begin, int64_t patch_columns, const ImageOrder& order);
  // A tile of an image that is read.
  struct Reading {
    int64_t begin;  // its first row in the streams
    const ImageOrder& order;
    const ImageTask& task;
    std::span<float> rows;  // of all levels
    int64_t first_row;      // of its tile in a level
    int64_t row_count;      // of a level
    const GoOn& go_on;
  };
  Status encode_tile(const std::vector<float>& patches, const Reading& reading);
  // The layers and the projector, for patches that stand in one of the streams, and a class token
  // behind them.
  Status run_layers(TensorView src, const Reading& reading);
  // Makes the rows of a level of patches that stand in one of the streams; the other one changes.
  void project(const TensorView& src, size_t level, const Reading& reading);
  // As many rows of the stream that these do not stand in.
  TensorView other_stream(const TensorView& rows, int64_t begin) const;

  std::unique_ptr<const ImageParts> parts_;
  DType compute_;
  int64_t rows_max_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  std::vector<Tensor> weight_memory_;
  std::vector<BlockWeights> weights_;  // by part
  int64_t rows_in_use_ = 0;            // of images that are being encoded
  Tensor streams_[2];                  // [stream_rows(), D] f32
  Tensor workspace_;
  Tensor angles_;     // [stream_rows(), d] f32
  Tensor positions_;  // [stream_rows()] i32: 0, 1, …: patches have the angles of their own row
};

}  // namespace jige::model
