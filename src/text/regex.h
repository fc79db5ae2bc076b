// Regular expressions as tokenizer files write them, on PCRE2 with its JIT compiler.
//
// The files follow Oniguruma's Ruby syntax; regex_syntax.h rewrites what PCRE2 reads differently
// and refuses what it cannot express. Matching is Unicode-aware throughout, as of Unicode 16.
//
// Bounds: a pattern is at most 64 KiB; one match attempt ends after a fixed number of steps; a scan
// that falls far behind any honest pattern's pace (kScanBytesPerSecondMin) ends too, with
// kExhausted naming the pattern. So a hostile pattern or text costs bounded time.
//
// Threads: a Regex is immutable and may be shared; each RegexScratch belongs to one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace jige::text {

// A byte range [begin, end) of a text.
struct Range {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Range&) const = default;
};

// Working memory of matching, made on first use and reused between calls.
class RegexScratch {
 public:
  RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;
  ~RegexScratch();

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// Whether a text ends where it ends, or is the beginning of a longer one.
enum class TextEnd { kClosed, kOpen };

class Regex {
 public:
  // Compiles a pattern; `where` names the file and field in errors. Fails with kCorrupt on a syntax
  // error and kUnsupported on syntax that PCRE2 would read differently.
  static Result<Regex> compile(std::string_view pattern, std::string_view where);

  // Goes through the matches of a text, leftmost first, without overlap. An empty match right after
  // another match is left out.
  class Scan {
   public:
    // REQUIRES: `text` is valid UTF-8; regex, text and scratch outlive the scan. Scans of one
    // thread may share a scratch, also in turns.
    Scan(const Regex& regex, std::string_view text, RegexScratch& scratch,
         TextEnd end = TextEnd::kClosed);
    Scan(const Scan&) = delete;
    Scan& operator=(const Scan&) = delete;
    // Whether there is another match, which goes to `match`. In a text with an open end only those
    // come that stand whatever follows. Fails with kExhausted (see Bounds).
    Result<bool> next(Range& match);
    // Goes on at `place`, as behind a match that is not empty. REQUIRES: a character begins there.
    void start_at(size_t place) { from_ = last_end_ = place; }
    // Whether next() gave no match because it depends on what follows an open end.
    bool waits() const { return waits_; }

   private:
    Status check_pace();

    const Regex& regex_;
    std::string shown_;  // the text, if it had to be changed for PCRE2 (newer_characters.h)
    std::string_view text_;
    RegexScratch& scratch_;
    StopWatch watch_;
    int until_look_;
    size_t from_ = 0;
    size_t last_end_ = SIZE_MAX;
    TextEnd end_;
    bool waits_ = false;
  };

  // Appends all matches of a scan to `matches`.
  Status find_all(std::string_view text, RegexScratch& scratch, std::vector<Range>& matches) const;

  const std::string& pattern() const;
  // Whether a match may depend on what stands before it (lookbehind, \b, ^).
  bool looks_back() const;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace jige::text
