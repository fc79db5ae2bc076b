#include "serve/draft_options.h"

namespace jige::serve {

Status validate(const DraftOptions& options) {
  if (options.tokens_max >= 0 && options.tokens_max <= kDraftTokensMax) return {};
  return fail(Code::kInvalidArgument, "tokens of a draft are {}; they must be in 0..{}",
              options.tokens_max, kDraftTokensMax);
}

}  // namespace jige::serve
