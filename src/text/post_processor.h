// The "post_processor" of a tokenizer.json: ids that go before and after those of a text.
//
// Known: TemplateProcessing, ByteLevel (changes no ids), BertProcessing, RobertaProcessing,
// Sequence.
// Threads: values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::text {

// What goes around two texts that belong together, and which of it all is of the second token type:
//   before  text  between  text  behind
struct PairFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> between;
  std::vector<int32_t> behind;
  // Of `between`, from here on, and all that follows; none of it where there is no such place.
  std::optional<size_t> second_from;
};

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  // Whether the file says what is added, be it nothing; a ByteLevel does not.
  bool decides = false;
  // Empty where the file says nothing of pairs, or what no PairFrame can say.
  std::optional<PairFrame> pair;

  // `component` may be null: nothing is added. Fails with kUnsupported naming an unknown type, and
  // on a template that holds the text less or more often than once.
  static Result<PostProcessor> from_json(const Json* component, std::string_view where);
};

}  // namespace jige::text
