// ImageRows: the rows of a micro-batch's images, computed while it is trained on.
//
//   JIGE_TRY(auto rows, ImageRows::load(training, architecture, device));
//   JIGE_DO(rows->read(batch, rope_table));    // behind read_batch()
//
// A model's tower (model/image_tower.h) is frozen: it makes rows of each image once a micro-batch,
// and they stand in place of the embedding's, as in inference. Their bits depend on the image
// alone.
// Memory is fixed at load but for one image's file, pixels and patches (image_rows_memory gives it
// beforehand). On CPUs. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/image_config.h"
#include "model/architecture.h"
#include "model/given_row.h"
#include "model/image_tower.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "train/image_training.h"
#include "train/step_plan.h"

namespace jige::train {

struct ImageRowsMemory {
  model::ImageTowerMemory tower;
  int64_t rows_bytes = 0;    // of a micro-batch
  int64_t angles_bytes = 0;  // likewise, where heads turn by places
  int64_t total_bytes() const { return tower.total_bytes() + rows_bytes + angles_bytes; }
};

// Fails with kUnsupported where the tower or the language model is one that cannot be trained with
// images, and kInvalidArgument where they do not belong together.
Result<ImageRowsMemory> image_rows_memory(const ImageTraining& training,
                                          const model::Architecture& architecture);

// Of the file, the pixels and the patches of the largest of some images, while it is read.
int64_t image_reading_bytes(const formats::ImageConfig& config,
                            std::span<const CorpusImage> images);

class ImageRows {
 public:
  // Reads the tower. Device and architecture outlive it. Fails as image_rows_memory and
  // ImageTower::load.
  static Result<std::unique_ptr<ImageRows>> load(const ImageTraining& training,
                                                 const model::Architecture& architecture,
                                                 Device& device);

  // Fills in what a batch's images give: rows, those that see one another, and angles by the
  // model's rope table. Valid until the next call. Fails as read_image_again, images::decode_image
  // and ImageTower::encode, naming the file.
  Status read(HostBatch& batch, const TensorView& rope_table);

  int64_t peak_bytes() const { return tower_->peak_bytes() + arena_.peak_bytes(); }
  // Images that were encoded so far.
  int64_t encoded_count() const { return encoded_count_; }

 private:
  ImageRows(const ImageTraining& training, const model::Architecture& architecture, Device& device);
  Status allocate(const model::Architecture& architecture);
  // Computes an image's rows, from row `taken` of each level on.
  Status encode(const BatchImage& image, int64_t taken, int64_t row_count);
  // Lists an image's rows, those that its sequence has.
  void give(const BatchImage& image, const formats::ImageLayout& layout, int64_t taken,
            HostBatch& batch) const;
  void put_angles(HostBatch& batch, const TensorView& rope_table);

  ImageTraining training_;
  int64_t width_;
  Arena arena_;
  std::unique_ptr<model::ImageTower> tower_;
  model::PlaceAngles places_;
  Tensor rows_;    // [levels · M, D] f32
  Tensor angles_;  // [M, columns] f32
  int64_t encoded_count_ = 0;
};

}  // namespace jige::train
