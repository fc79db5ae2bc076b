// The flags that say what an answer must be: JSON of a schema, a JSON object, a text that an
// expression matches or that rules make up, one of some texts. One of them at most.
//
//   JIGE_TRY(const auto source, constraint_.read());   // before a model is loaded
//   if (source) JIGE_TRY(options.constraint, ConstraintCompiler(tokenizer).compile(*source));
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/constraint_compiler.h"

namespace jige::cli {

class Flags;

struct ConstraintFlags {
  std::optional<std::string> json_schema, regex, grammar;
  bool json_object = false;
  std::vector<std::string> choices;

  void declare(Flags& flags);
  // What they ask for, or nothing. Reads the file of a schema or of rules and tries whether a
  // grammar comes of it. Fails with kInvalidArgument or kUnsupported, naming the flag and the place
  // in its value; and as the readers of files and JSON do.
  Result<std::optional<grammar::ConstraintSource>> read() const;

 private:
  Result<Json> read_schema() const;
  Result<std::string> read_rules() const;
};

}  // namespace jige::cli
