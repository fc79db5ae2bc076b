#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/check.h"
#include "text/newer_characters.h"
#include "text/regex_syntax.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr size_t kPatternBytesMax = 64 << 10;
constexpr uint32_t kMatchStepsMax = 20'000'000;
constexpr size_t kJitStackBytes = 4 << 20;
// Honest patterns run at tens of MB/s.
constexpr double kScanBytesPerSecondMin = 200e3;
constexpr double kScanSecondsMin = 3.0;
constexpr int kMatchesPerClockLook = 16;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[160];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

std::string shortened(std::string_view pattern) {
  return pattern.size() <= 120 ? std::string(pattern) : std::string(pattern.substr(0, 117)) + "...";
}

// Whether a pattern has, outside classes, what looks back and PCRE2 does not count as lookbehind.
// May say so of patterns that have none.
bool anchors(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
      if (i < pattern.size() &&
          std::string_view("AGQXZ").find(pattern[i]) != std::string_view::npos) {
        return true;
      }
    } else if (in_class) {
      in_class = pattern[i] != ']';
    } else if (pattern[i] == '[') {
      in_class = true;
    } else if (pattern[i] == '^') {
      return true;
    }
  }
  return false;
}

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

}  // namespace

struct RegexScratch::State {
  std::unique_ptr<pcre2_match_data, FreeMatchData> match{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack{
      pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context{
      pcre2_match_context_create(nullptr)};

  State() {
    JIGE_CHECK(match && stack && context, "out of memory for the regular expression engine");
    pcre2_set_match_limit(context.get(), kMatchStepsMax);
    pcre2_set_depth_limit(context.get(), kMatchStepsMax);
    pcre2_set_heap_limit(context.get(), 256 << 10);  // KiB
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::string pattern;
  bool looks_back = true;
};

Result<Regex> Regex::compile(std::string_view pattern, std::string_view where) {
  if (pattern.size() > kPatternBytesMax) {
    return fail(Code::kUnsupported, "{}: the pattern has {} bytes, more than {}", where,
                pattern.size(), kPatternBytesMax);
  }
  if (!is_valid_utf8(pattern)) {
    return fail(Code::kCorrupt, "{}: the pattern is not valid UTF-8", where);
  }
  JIGE_TRY(const std::string rewritten, to_pcre2_syntax(pattern, where));
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  JIGE_CHECK(context, "out of memory for the regular expression compiler");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
  std::unique_ptr<pcre2_code, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(), options,
                    &error, &offset, context.get()));
  if (!code) {
    return fail(Code::kCorrupt, "{}: cannot read the pattern \"{}\": {}", where, shortened(pattern),
                error_text(error));
  }
  // Without JIT (an unusual machine) matching still works, more slowly.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  uint32_t lookbehind = 0;
  const bool asked = pcre2_pattern_info(code.get(), PCRE2_INFO_MAXLOOKBEHIND, &lookbehind) == 0;
  const bool looks_back = !asked || lookbehind > 0 || anchors(rewritten);
  return Regex(std::make_shared<const Compiled>(
      Compiled{std::move(code), std::string(pattern), looks_back}));
}

const std::string& Regex::pattern() const { return compiled_->pattern; }
bool Regex::looks_back() const { return compiled_->looks_back; }

Regex::Scan::Scan(const Regex& regex, std::string_view text, RegexScratch& scratch, TextEnd end)
    : regex_(regex), text_(text), scratch_(scratch), until_look_(kMatchesPerClockLook), end_(end) {
  if (!scratch.state_) scratch.state_ = std::make_unique<RegexScratch::State>();
  if (show_older_characters(text, shown_)) text_ = shown_;
}

Status Regex::Scan::check_pace() {
  until_look_ = kMatchesPerClockLook;
  const double seconds = watch_.seconds();
  if (seconds < kScanSecondsMin + static_cast<double>(text_.size()) / kScanBytesPerSecondMin) {
    return {};
  }
  return fail(Code::kExhausted, "the pattern \"{}\" is too slow: {} of {} bytes in {:.1f} s",
              shortened(regex_.pattern()), from_, text_.size(), seconds);
}

Result<bool> Regex::Scan::next(Range& match) {
  const RegexScratch::State& state = *scratch_.state_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  // A hard partial match is told as soon as a match would look behind the end.
  const uint32_t options =
      PCRE2_NO_UTF_CHECK | (end_ == TextEnd::kOpen ? PCRE2_PARTIAL_HARD : uint32_t{0});
  while (from_ <= text_.size()) {
    const int found = pcre2_match(regex_.compiled_->code.get(), subject, text_.size(), from_,
                                  options, state.match.get(), state.context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_PARTIAL) {
      waits_ = true;
      break;
    }
    if (found < 0) {
      return fail(Code::kExhausted, "the pattern \"{}\" needs too many steps at byte {}: {}",
                  shortened(regex_.pattern()), from_, error_text(found));
    }
    if (--until_look_ == 0) JIGE_DO(check_pace());
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state.match.get());
    match = {ends[0], std::max(ends[0], ends[1])};
    const bool empty = match.begin == match.end;
    const bool counts = !empty || match.begin != last_end_;
    last_end_ = from_ = match.end;
    if (empty) from_ += match.end < text_.size() ? utf8_size(text_[match.end]) : 1;
    if (counts) return true;
  }
  from_ = text_.size() + 1;
  return false;
}

Status Regex::find_all(std::string_view text, RegexScratch& scratch,
                       std::vector<Range>& matches) const {
  Scan scan(*this, text, scratch);
  Range match;
  for (;;) {
    JIGE_TRY(const bool more, scan.next(match));
    if (!more) return {};
    matches.push_back(match);
  }
}

}  // namespace jige::text
