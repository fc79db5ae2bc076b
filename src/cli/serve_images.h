// What reads the images of `jige serve`. The tower is loaded before the language model, so that
// what it takes is known when the cache is planned. It has threads of its own, which stand back: in
// the team of the engine each of its short loops would wait for a long one of the tower.
//
//   JIGE_DO(images.load(folder, tokenizer, {.threads = …, .rows_bytes_max = …}));
//   …plan and load the model, with images.memory_bytes() less…
//   served.images = images.reader(model);
//
// Threads: one thread; the reader looks after itself, and must be stopped before this goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/image_reader.h"
#include "base/result.h"
#include "model/image_tower.h"
#include "model/inference.h"
#include "serve/image_prompts.h"
#include "tensor/cpu_device.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct ServeImagesOptions {
  int threads = 0;                             // 0: one for each processor
  int64_t memory_bytes_max = kUnlimitedBytes;  // of the tower
  int64_t rows_bytes_max = 0;                  // of images whose rows are kept or in use
  int64_t pixels_max = 0;                      // of the largest image; 0: as the folder says
  int64_t context_max = 0;                     // of the model, which holds the rows of an image
  bool on_processors = true;  // the language model runs on those of this machine alone
};

class ServeImages {
 public:
  // Loads what reads images, where the folder's model has it; where that cannot be used, a warning
  // says why. Fails with kExhausted where memory is too small for it, and kInvalidArgument where
  // the rows of one image are more than may be kept.
  Status load(const std::string& folder, const text::Tokenizer& tokenizer,
              const ServeImagesOptions& options);

  // Of the tower and of rows, at most; 0 where no images are read.
  int64_t memory_bytes() const { return tower_ ? tower_->peak_bytes() + rows_bytes_ : 0; }
  // The same for people, with the rows of the largest image.
  std::string text() const;
  // Tokens that the model must take at once, whatever its own limit is: those of an image whose
  // rows see one another.
  int64_t rows_together() const;
  // For requests to the model of the folder, with contexts of so many tokens; null where no images
  // are read, and a warning says why where the model cannot take their rows. REQUIRES: the model
  // has had no request.
  std::shared_ptr<api::ImageReader> reader(model::InferenceModel& model, int64_t context_max);

 private:
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<model::ImageTower> tower_;
  int64_t rows_bytes_ = 0;
  std::unique_ptr<serve::ImagePrompts> prompts_;
};

}  // namespace jige::cli
