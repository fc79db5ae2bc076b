// What commands that train look at before they do: files, folders, and how fast the machine is.
//
// Threads: one thread.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/device_flags.h"
#include "train/options.h"

namespace jige::cli {

// That the data is in files that can be read again. Fails with kInvalidArgument.
Status check_data_files(const train::DataOptions& data);

// That a run may begin in a folder: one in that of a model would leave two models there, and
// commands take the old one. Fails with kInvalidArgument.
Status check_no_model(const std::string& out_folder);

// The rate of matrix products, in a fifth of a second on the shape of this model's largest layer,
// or on what is as fast: that a model is too large for the machine is said later, with what it
// takes. Fails as reading the model's configuration and DeviceFlags::make() do.
Result<double> measure_training_rate(const DeviceFlags& device, const train::TrainOptions& options);

}  // namespace jige::cli
