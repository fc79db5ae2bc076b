#include "train/run_source.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "formats/json_file.h"

namespace jige::train {
namespace {

std::string absolute_folder(const std::string& folder) {
  if (folder.empty()) return folder;
  std::error_code error;
  // With a slash at the end or without it.
  const std::filesystem::path path =
      (std::filesystem::absolute(folder, error) / "").lexically_normal().parent_path();
  return error ? folder : path.string();
}

}  // namespace

Result<std::optional<RunSource>> check_source(
    const RunSetup& setup, const std::optional<formats::CheckpointReader>& checkpoint) {
  if (setup.options.lora) return std::nullopt;
  RunSource source{.folder = absolute_folder(setup.options.init_folder)};
  const auto measure = [&]() -> Status {
    if (source.folder.empty()) return {};
    JIGE_TRY(source.checksum, hash_weights(source.folder));
    return {};
  };
  if (!checkpoint) {
    JIGE_DO(measure());
    return source;
  }
  JIGE_TRY(const RunOrigin origin,
           RunOrigin::from_state(checkpoint->state(), checkpoint->folder() + "/state.json"));
  if (!origin.source || origin.source->folder == source.folder) return origin.source;
  const std::string& begun = origin.source->folder;
  if (source.folder.empty()) {
    return fail(Code::kInvalidArgument,
                "{}: was begun from the model in {}, this run begins a new one; continue without "
                "flags of the model, or start anew in another folder",
                checkpoint->folder(), begun);
  }
  if (begun.empty()) {
    return fail(Code::kInvalidArgument,
                "{}: was begun with a new model, not from {}; continue without --from, or start "
                "anew in another folder",
                checkpoint->folder(), source.folder);
  }
  JIGE_DO(measure());
  if (source.checksum == origin.source->checksum) return source;
  return fail(Code::kInvalidArgument,
              "{}: was begun from the model in {}, {} has other weights; continue with the old "
              "--from or without it, or start anew in another folder",
              checkpoint->folder(), begun, source.folder);
}

std::string recorded_source(const std::string& out_folder) {
  const std::string folder = out_folder + "/checkpoints";
  // What is damaged is named when the run goes on; all checkpoints of a run say the same.
  for (const formats::CheckpointName& name : formats::list_checkpoints(folder)) {
    const std::string path = folder + "/" + name.folder + "/state.json";
    const auto json = formats::load_json_object(path, formats::kStateBytesMax);
    if (!json || !json->contains("state") || !json->at("state").is_object()) continue;
    const auto origin = RunOrigin::from_state(json->at("state"), path);
    if (origin && origin->source) return origin->source->folder;
  }
  return "";
}

}  // namespace jige::train
