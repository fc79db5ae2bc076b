// PatternReader: where a parser stands in an expression or a grammar, and what both notations
// share: counts of repeats, characters by their number, and errors that name the place. Threads:
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "grammar/repeat.h"

namespace jige::grammar {

class PatternReader {
 protected:
  // `what` is read, "the expression", and outlives the reader as the source does.
  PatternReader(std::string_view source, std::string_view what) : source_(source), what_(what) {}

  // Fails with kInvalidArgument where the source is longer, or not UTF-8.
  Status check(size_t bytes_max) const;
  // An error at this place.
  tl::unexpected<Error> wrong(std::string_view message) const;

  bool ends() const { return at_ >= source_.size(); }
  bool sees(char c) const { return !ends() && source_[at_] == c; }
  bool sees(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  bool take(std::string_view text);
  // REQUIRES: not at the end.
  char32_t take_character();
  // A decimal number, kRepeatMax + 1 for all beyond.
  std::optional<int32_t> take_number();
  // A character by so many hexadecimal digits. Fails where they are missing or name none.
  Result<char32_t> take_hex(int digit_count);
  // Fails where a repeat is of no counts, or of more than are taken.
  Status check_counts(Counts counts) const;

  std::string_view source_;
  size_t at_ = 0;  // in bytes

 private:
  std::string_view what_;
};

}  // namespace jige::grammar
