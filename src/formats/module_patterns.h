// ModulePatterns: the modules that lists of a quantization_config name, such as "lm_head" and
// "re:.*gate$".
//
// Two readings:
//   compressed-tensors  the module's whole name; behind "re:" a regular expression that matches
//   from
//                       its start; "Linear": every matrix
//   transformers        a name that the module's name starts with, up to a dot or its end, or ends
//                       with; where it has other characters than names have, a regular expression
//                       that matches from the start, up to a dot or the end
// A target is more specific the less it may match: a name, an expression, a class.
// Threads: values; matching may be done from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"

namespace jige::formats {

inline constexpr size_t kModulePatternsMax = 4096;

enum class PatternStyle { kCompressedTensors, kTransformers };
enum class PatternMatch { kNone, kClass, kExpression, kName };

class ModulePatterns {
 public:
  // Reads a list of strings; null: none. Fails with kCorrupt on anything else, on too many of them
  // and on expressions with errors, with kUnsupported on those Jige does not read; `where` names
  // the field.
  static Result<ModulePatterns> parse(const Json* list, PatternStyle style, std::string_view where);
  // Adds an expression that matches from the start of a name.
  Status add_expression(std::string_view text, std::string_view where);

  // How specifically a module is named. Fails with kExhausted where an expression takes too long.
  Result<PatternMatch> match(std::string_view module) const;
  bool empty() const;
  bool operator==(const ModulePatterns& other) const;

 private:
  struct Expression {
    std::string text;
    std::shared_ptr<const text::Regex> regex;
  };
  Status add(const std::string& text, PatternStyle style, std::string_view where);

  std::unordered_set<std::string> names_;  // whole ones
  std::vector<std::string> parts_;         // that begin a name or end it
  std::vector<Expression> expressions_;
  bool every_linear_ = false;
};

}  // namespace jige::formats
