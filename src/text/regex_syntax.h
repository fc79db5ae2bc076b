// Rewrites Oniguruma (Ruby) regular expressions, the dialect of tokenizer files, for PCRE2.
//
//   \s \S \w \W \h \H   their Oniguruma meaning as explicit classes
//   \b \B               between characters that are \w there, marks and VS16 among them
//   \p{Han}             a script name, not PCRE2's script extensions; \p{Letter} and other long
//   names
//   (?m) -> (?s)        Ruby's m lets the dot match newlines; ^ and $ always match at lines
//   \uHHHH, {,n}        spelled as PCRE2 does
//   [a[bc]] [^a[^b]]    classes inside classes and intersections: as alternatives and look-aheads
//   [a-z&&[^e]]         where they are more than the items of one class
//
// Refused with kUnsupported, since PCRE2 would silently match something else: possessive {n,m}+,
// control verbs and callouts, \K, \C.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace jige::text {

// The pattern for PCRE2; `where` names the file and field in errors.
Result<std::string> to_pcre2_syntax(std::string_view pattern, std::string_view where);

}  // namespace jige::text
