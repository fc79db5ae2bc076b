// Images in a run that is being prepared (run_setup.h): whether its data may have any, and what
// reads them.
//
// Threads: one thread at a time.
#pragma once

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/dataset.h"
#include "train/run_setup.h"

namespace jige::train {

// Says in `data` how images become tokens, or why the run has no way for them. Fails as
// limit_image_pixels. REQUIRES: a model, with a context.
Status offer_images(const RunSetup& setup, const text::Tokenizer& tokenizer, DatasetOptions& data);

// Where the data that was read has images: chooses what reads them and adds its memory to what the
// run takes, unchecked. Fails as image_rows_memory.
Status add_images(RunSetup& setup, const DatasetOptions& data);

}  // namespace jige::train
