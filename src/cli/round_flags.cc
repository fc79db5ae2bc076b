#include "cli/round_flags.h"

#include <fmt/format.h>

#include "cli/flags.h"

namespace jige::cli {

void RoundFlags::declare(Flags& flags) {
  flags.integer("--round-prompts N", prompts, {.min = 1, .max = 4096},
                "rounds: prompts that begin together at most");
  flags.integer("--round-steps N", steps, {.min = 1, .max = 1 << 20},
                "rounds: iterations of next tokens before prompts begin again; fewer: more "
                "throughput, more: steadier and faster answers");
}

Status RoundFlags::check_use(const Flags& flags, bool with_rounds, std::string_view flag) {
  if (with_rounds) return {};
  return flags.refuse({"--round-prompts", "--round-steps"},
                      fmt::format("is of the policy rounds; add {} rounds, or leave it out", flag));
}

}  // namespace jige::cli
