#include "cli/speculation_flags.h"

#include <charconv>

#include "cli/flags.h"
#include "cli/input.h"
#include "formats/model_config.h"

namespace jige::cli {

void SpeculationFlags::declare(Flags& flags) {
  flags.text("--speculate N", speculate,
             "guess up to N tokens from what the text repeats of itself, or what it is constrained "
             "to makes certain, and verify them in one step; the answer is the same, bit for bit. "
             "auto: as many as are worth it; off: none");
  flags.text(
      "--draft-model FOLDER", draft_model,
      "a small model of the same vocabulary guesses, too, where nothing is certain and no repeat "
      "promises more; it is run with the weights' own type");
}

Result<serve::DraftOptions> SpeculationFlags::read() const {
  if (speculate == "off") {
    if (draft_model.empty()) return serve::DraftOptions{};
    return fail(Code::kInvalidArgument,
                "--draft-model {} guesses, which --speculate off turns off; leave out one of them",
                draft_model);
  }
  if (speculate == "auto") return serve::DraftOptions{.tokens_max = serve::kDraftTokensAuto};
  const char* const end = speculate.data() + speculate.size();
  int32_t count = 0;
  const auto read = std::from_chars(speculate.data(), end, count);
  if (read.ec != std::errc() || read.ptr != end || count < 1 || count > serve::kDraftTokensMax) {
    return fail(Code::kInvalidArgument, "--speculate: \"{}\" is not auto, off or a number in 1..{}",
                speculate, serve::kDraftTokensMax);
  }
  return serve::DraftOptions{.tokens_max = count, .adaptive = false};
}

Status SpeculationFlags::check_divided(const std::string& folder) const {
  JIGE_TRY(const serve::DraftOptions drafts, read());
  const bool asked = !draft_model.empty() || !drafts.adaptive;
  if (!asked || drafts.tokens_max == 0) return {};
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(folder));
  if (formats::recurrent_layer_count(config) == 0) return {};
  return fail(
      Code::kUnsupported,
      "{}: has recurrent layers, for which nothing is guessed ahead where other machines or GPUs "
      "hold layers (--layers-on, --device); leave out {}",
      folder, draft_model.empty() ? "--speculate " + speculate : "--draft-model");
}

Result<std::optional<serve::DraftModelPlan>> SpeculationFlags::plan_draft_model(
    const text::Tokenizer& tokenizer, serve::DraftModelUse use) const {
  if (draft_model.empty()) return std::nullopt;
  JIGE_TRY(const std::string draft_folder, find_model_folder(draft_model));
  JIGE_TRY(const auto draft_tokenizer, text::Tokenizer::load(draft_folder));
  Result<int32_t> ids = serve::common_vocabulary(tokenizer, draft_tokenizer);
  if (!ids) return with_context(std::move(ids.error()), "--draft-model {}", draft_model);
  use.ids_max = *ids;
  return serve::DraftModelPlan::create(draft_folder, use).map([](serve::DraftModelPlan plan) {
    return std::make_optional(std::move(plan));
  });
}

}  // namespace jige::cli
