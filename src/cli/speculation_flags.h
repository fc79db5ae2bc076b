// --speculate and --draft-model: whether, how far and by whom tokens are drafted, for the commands
// that generate.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "serve/draft_model_plan.h"
#include "serve/draft_options.h"
#include "text/tokenizer.h"

namespace jige::cli {

class Flags;

struct SpeculationFlags {
  std::string speculate = "auto";
  std::string draft_model;

  void declare(Flags& flags);
  // Fails with kInvalidArgument, naming the flag and what it takes.
  Result<serve::DraftOptions> read() const;
  // Where layers of a folder's model are on other machines or GPUs. Fails with kUnsupported where
  // guesses are asked for that such a model cannot have.
  Status check_divided(const std::string& folder) const;
  // The model of --draft-model for one with this tokenizer; `use` without ids_max. Nothing without
  // the flag. Fails as find_model_folder, common_vocabulary and DraftModelPlan::create do.
  Result<std::optional<serve::DraftModelPlan>> plan_draft_model(const text::Tokenizer& tokenizer,
                                                                serve::DraftModelUse use) const;
};

}  // namespace jige::cli
