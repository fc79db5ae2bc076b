#include "cli/reasoning_flag.h"

#include "cli/flags.h"
#include "text/reasoning.h"

namespace jige::cli {

void ReasoningFlag::declare(Flags& flags) {
  flags.choice("--reasoning FORMAT", format, {"auto", "think", "off"},
               "what a chat answer begins with is not its content; think: <think>…</think>, or the "
               "channels of gpt-oss; auto: where the chat template has these marks");
}

bool ReasoningFlag::is_expected(const text::ChatTemplate* chat) const {
  return format == "auto" ? chat && text::has_reasoning(*chat) : format == "think";
}

}  // namespace jige::cli
