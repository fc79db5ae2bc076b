// The texts that `jige bench speculation --texts` asks for: answers that quote their prompt, fit a
// JSON schema, call a tool, or are free.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/speculation_bench.h"
#include "formats/model_config.h"
#include "text/tokenizer.h"

namespace jige::cli {

// Greedy ones, some prompts each, in the form of the tokenizer's chat template or, where it has
// none, in that of the models that Jige trains. Fails as rendering and compiling a schema do.
Result<std::vector<SpeculationCase>> text_cases(const text::Tokenizer& tokenizer,
                                                const formats::ModelConfig& config);

}  // namespace jige::cli
