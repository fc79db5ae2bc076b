#include "cli/speculation_flags.h"

#include <charconv>

#include "cli/flags.h"

namespace jige::cli {

void SpeculationFlags::declare(Flags& flags) {
  flags.text("--speculate N", speculate,
             "guess up to N tokens from what the text repeats of itself and verify them in one "
             "step; the answer is the same, bit for bit. auto: as many as are worth it; off: none");
}

Result<serve::DraftOptions> SpeculationFlags::read() const {
  if (speculate == "off") return serve::DraftOptions{};
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

}  // namespace jige::cli
