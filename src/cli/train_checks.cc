#include "cli/train_checks.h"

#include <algorithm>
#include <filesystem>

#include "cli/machine_rates.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "train/line_reader.h"

namespace jige::cli {
namespace {

// Wider matrix products are not faster.
constexpr int64_t kProbeWidthMax = 8192;

}  // namespace

Status check_data_files(const train::DataOptions& data) {
  for (const auto* files : {&data.files, &data.eval_files}) {
    for (const std::string& file : *files) {
      std::error_code error;
      const std::filesystem::file_status status = std::filesystem::status(file, error);
      if (std::filesystem::is_directory(status)) return train::folder_is_no_data(file);
      const bool stream =
          std::filesystem::exists(status) ? !std::filesystem::is_regular_file(status) : file == "-";
      if (!stream) continue;
      return fail(Code::kInvalidArgument,
                  "{}: is no file that stays: training reads its data more than once, and again "
                  "when it goes on; write it to a file",
                  file);
    }
  }
  return {};
}

Status check_no_model(const std::string& out_folder) {
  std::error_code error;
  const std::filesystem::path folder(out_folder);
  const bool begun = !formats::list_checkpoints((folder / "checkpoints").string()).empty();
  if (begun || !std::filesystem::exists(folder / "config.json", error)) return {};
  return fail(Code::kInvalidArgument,
              "{}: is the folder of a model; name another one for the run, which writes its model "
              "to OUT/model",
              out_folder);
}

Result<double> measure_training_rate(const DeviceFlags& device,
                                     const train::TrainOptions& options) {
  formats::ModelConfig config;
  if (options.config) {
    config = *options.config;
  } else {
    JIGE_TRY(config, formats::load_model_config(options.init_folder));
  }
  JIGE_TRY(const ComputeDevices devices, device.make());
  return measure_gemm_flops_per_s(
      devices.compute(), options.compute,
      {.tokens = std::min<int64_t>(options.micro_batch_tokens, 512),
       .inputs = std::min(config.hidden_size, kProbeWidthMax),
       .outputs = std::min(formats::inner_columns(config), kProbeWidthMax)},
      0.2);
}

}  // namespace jige::cli
