#include "train/run_source.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "train/option_flags.h"

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

// The base of the adapter in a checkpoint, by its weights; "" where none is said.
std::string base_checksum(const Json& identity) {
  const auto lora = identity.find("lora");
  if (lora == identity.end()) return "";
  const auto base = lora->find("base");
  return base == lora->end() || !base->is_string() ? "" : base->get<std::string>();
}

// That an adapter goes on with the base it was begun on.
Status check_base(const RunSetup& setup, const formats::CheckpointReader& checkpoint) {
  const auto identity = checkpoint.state().find("identity");
  if (identity == checkpoint.state().end()) return {};  // refused by name when it is compared
  const std::string begun = base_checksum(*identity);
  if (begun.empty() || begun == base_checksum(*setup.identity)) return {};
  JIGE_TRY(const RunOrigin origin,
           RunOrigin::from_state(checkpoint.state(), checkpoint.folder() + "/state.json"));
  return other_base({.adapter = checkpoint.folder(),
                     .made_for = origin.base_folder,
                     .given = setup.options.init_folder,
                     .remedy = "name the folder of those with --from, or start anew in another "
                               "folder"});
}

}  // namespace

Status check_resume(const std::string& out_folder, ResumeMode mode) {
  const std::string folder = out_folder + "/checkpoints";
  const bool begun = !formats::list_checkpoints(folder).empty();
  if (!begun && mode == ResumeMode::kRequired) {
    return fail(Code::kNotFound, "{}: has no checkpoint to continue from", folder);
  }
  if (begun && mode == ResumeMode::kNever) {
    return fail(Code::kInvalidArgument,
                "{}: has checkpoints of an earlier run; continue it, remove them or choose another "
                "folder",
                folder);
  }
  return {};
}

tl::unexpected<Error> other_base(const OtherBase& bases) {
  const std::string made_for = absolute_folder(bases.made_for);
  const std::string given = absolute_folder(bases.given);
  if (made_for == given) {
    return fail(Code::kInvalidArgument,
                "{}: its adapter was trained on the model in {}, whose weights are no longer the "
                "same; {}",
                bases.adapter, given, bases.remedy);
  }
  return fail(Code::kInvalidArgument,
              "{}: its adapter was trained on {}, the model in {} has other weights; {}",
              bases.adapter, made_for.empty() ? "another model" : "the model in " + made_for, given,
              bases.remedy);
}

Result<std::optional<RunSource>> check_source(
    const RunSetup& setup, const std::optional<formats::CheckpointReader>& checkpoint) {
  if (setup.options.lora) {
    if (checkpoint) JIGE_DO(check_base(setup, *checkpoint));
    return std::nullopt;
  }
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

namespace {

// What the newest checkpoint that can be read says of where the run came from; all of a run say the
// same. What is damaged is named when the run goes on.
struct Recorded {
  RunOrigin origin;
  Json identity;
};
Recorded recorded(const std::string& out_folder) {
  const std::string folder = out_folder + "/checkpoints";
  for (const formats::CheckpointName& name : formats::list_checkpoints(folder)) {
    const std::string path = folder + "/" + name.folder + "/state.json";
    const auto json = formats::load_json_object(path, formats::kStateBytesMax);
    if (!json || !json->contains("state") || !json->at("state").is_object()) continue;
    const Json& state = json->at("state");
    auto origin = RunOrigin::from_state(state, path);
    if (!origin || (!origin->source && origin->base_folder.empty())) continue;
    return {.origin = std::move(*origin), .identity = state.value("identity", Json())};
  }
  return {};
}

// " --flag value", or a flag for each of several values; "" where the identity has none. Values are
// numbers and plain words.
std::string flags_of_field(const Json& object, const char* field, std::string_view flag) {
  const auto found = object.find(field);
  if (found == object.end()) return "";
  std::string flags;
  for (const Json& value : found->is_array() ? *found : Json::array({*found})) {
    flags +=
        fmt::format(" {} {}", flag, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return flags;
}

// " --dpo --dpo-beta 0.1 …"; "" of a run without pairs.
std::string preference_flags(const Json& identity) {
  const Json dpo = identity.is_object() ? identity.value("dpo", Json()) : Json();
  if (!dpo.is_object()) return "";
  return " --dpo" + flags_of_field(dpo, "beta", "--dpo-beta") +
         flags_of_field(dpo, "label_smoothing", "--dpo-label-smoothing") +
         flags_of_field(dpo, "sft_weight", "--dpo-sft-weight");
}

// The same of a run that learns from rewards.
std::string reward_flags(const Json& identity) {
  const Json grpo = identity.is_object() ? identity.value("grpo", Json()) : Json();
  if (!grpo.is_object()) return "";
  std::string flags = " --grpo";
  for (const auto& [field, value] : grpo.items()) {
    const std::string_view flag = flag_of("grpo." + field);
    flags += field == "reward_command"
                 ? fmt::format(" {} '{}'", flag, value.is_string() ? value.get<std::string>() : "")
                 : flags_of_field(grpo, field.c_str(), flag);
  }
  return flags;
}

}  // namespace

std::string recorded_source(const std::string& out_folder) {
  const RunOrigin origin = recorded(out_folder).origin;
  return origin.source ? origin.source->folder : "";
}

std::string recorded_adapter_flags(const std::string& out_folder) {
  const Recorded run = recorded(out_folder);
  if (run.origin.base_folder.empty()) return "";
  const Json lora = run.identity.is_object() ? run.identity.value("lora", Json()) : Json();
  return fmt::format("--from {} --lora", run.origin.base_folder) +
         flags_of_field(lora, "rank", "--lora-rank") +
         flags_of_field(lora, "alpha", "--lora-alpha") +
         flags_of_field(lora, "target_modules", "--lora-target") +
         (lora.is_object() && lora.contains("dora") ? " --dora" : "") +
         (lora.is_object() && lora.contains("rs") ? " --lora-rs" : "") +
         flags_of_field(lora, "dropout", "--lora-dropout") +
         flags_of_field(lora, "b_rate", "--lora-plus") +
         flags_of_field(run.identity, "quantize", "--quantize") + preference_flags(run.identity) +
         reward_flags(run.identity);
}

}  // namespace jige::train
