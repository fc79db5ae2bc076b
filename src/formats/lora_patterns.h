// LoraPatterns: rank and strength of single modules, as rank_pattern and alpha_pattern of an
// adapter_config.json give them.
//
//   JIGE_TRY(const auto patterns, LoraPatterns::create(config, path));
//   JIGE_TRY(const LoraModule numbers, patterns.of("model.layers.0.self_attn.q_proj"));
//
// As PEFT has it, the first expression counts, in the order of the file, that matches the whole
// name or what stands in it behind a dot: Python's re.match(rf"(.*\.)?({expression})$", name).
// Threads: const; create() and of() from any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/lora_config.h"
#include "text/regex.h"

namespace jige::formats {

struct LoraModule {
  int64_t rank = 0;
  double scale = 0;  // what B A is multiplied with
};

class LoraPatterns {
 public:
  // Fails as text::Regex::compile does, naming the expression. `where` names the file.
  static Result<LoraPatterns> create(const LoraConfig& config, std::string_view where);
  // By the name that the adapter's tensors have, without "base_model.model.". Fails with kExhausted
  // where an expression takes too many steps.
  Result<LoraModule> of(std::string_view module) const;

 private:
  explicit LoraPatterns(const LoraConfig& config) : config_(config) {}

  LoraConfig config_;
  std::vector<text::Regex> ranks_;   // in the order of its patterns
  std::vector<text::Regex> alphas_;  // likewise
};

}  // namespace jige::formats
