#include "grammar/pattern_reader.h"

#include <algorithm>

#include "grammar/code_points.h"
#include "text/unicode.h"

namespace jige::grammar {

Status PatternReader::check(size_t bytes_max) const {
  if (source_.size() > bytes_max) {
    return fail(Code::kInvalidArgument, "{} has {} bytes; at most {} are taken", what_,
                source_.size(), bytes_max);
  }
  if (!text::is_valid_utf8(source_)) {
    return fail(Code::kInvalidArgument, "{} is not valid UTF-8", what_);
  }
  return {};
}

tl::unexpected<Error> PatternReader::wrong(std::string_view message) const {
  const auto here = source_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto line = 1 + std::count(source_.begin(), here, '\n');
  return fail(Code::kInvalidArgument, "{} at byte {}{}: {}", what_, at_,
              source_.find('\n') == source_.npos ? "" : fmt::format(", in line {}", line), message);
}

bool PatternReader::take(std::string_view text) {
  if (!sees(text)) return false;
  at_ += text.size();
  return true;
}

char32_t PatternReader::take_character() {
  const text::Decoded decoded = text::decode_utf8(source_.substr(at_));
  at_ += decoded.size;
  return decoded.code_point;
}

std::optional<int32_t> PatternReader::take_number() {
  std::optional<int32_t> value;
  while (!ends() && source_[at_] >= '0' && source_[at_] <= '9') {
    value = std::min(value.value_or(0) * 10 + (source_[at_++] - '0'), kRepeatMax + 1);
  }
  return value;
}

Result<char32_t> PatternReader::take_hex(int digit_count) {
  uint64_t value = 0;
  for (int i = 0; i < digit_count; ++i) {
    const char c = ends() ? ' ' : source_[at_++];
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!digit && !letter) {
      return wrong(fmt::format("an escape needs {} hexadecimal digits", digit_count));
    }
    value = value * 16 + static_cast<uint64_t>(digit ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) {
    return wrong("an escape of what is no character");
  }
  return static_cast<char32_t>(value);
}

Status PatternReader::check_counts(Counts counts) const {
  if (counts.min > kRepeatMax || counts.max > kRepeatMax) {
    return wrong(fmt::format("a repeat of more than {} times", kRepeatMax));
  }
  if (counts.max != kUnbounded && counts.max < counts.min) {
    return wrong("the most of a repeat is less than its least");
  }
  return {};
}

}  // namespace jige::grammar
