// The flags that say how text is drawn, shared by generate and chat.
//
// Precedence: flag, then the folder's generation_config.json, then temperature 0.8 and top-p 0.95.
// A folder that says do_sample false is greedy unless a flag says otherwise.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/loaded_model.h"
#include "cli/speculation_flags.h"
#include "serve/generator.h"

namespace jige::cli {

class Flags;

struct GenerationFlags {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, tokens_max, seed;
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  SpeculationFlags speculation;

  void declare(Flags& flags);
  // Without --seed the seed comes from the clock. `tokens_default` new tokens unless flag or folder
  // say otherwise. The result looks at the interrupt flag. Fails as load_generation_config does and
  // on values that ops::validate refuses.
  Result<serve::GenerateOptions> to_options(const LoadedModel& loaded,
                                            int64_t tokens_default) const;
};

// "41 tokens at 120 tokens/s (prompt of 12 at 800 tokens/s, first token after 0.03 s)".
std::string stats_text(const serve::GenerationStats& stats);
Json stats_json(const serve::GenerationStats& stats);

// The text as it may be shown: without_controls (base/printable.h) where standard output is a
// terminal.
std::string shown_text(std::string_view text);

}  // namespace jige::cli
