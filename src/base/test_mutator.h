// A seeded mutator of texts and files, for tests of what reads them.
//
//   for (uint64_t seed = 0; seed < fuzz_rounds(1000); ++seed) read(Mutator(seed).mutate(good));
//
// Threads: one test at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "base/rng.h"

namespace jige {

// Damages a text in one to four ways that real damage and malice take.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(derive_key(seed, "mutator")) {}

  std::string mutate(std::string text) {
    const uint64_t count = 1 + rng_.below(4);
    for (uint64_t i = 0; i < count; ++i) mutate_once(text);
    return text;
  }

 private:
  size_t place(const std::string& text) { return rng_.below(text.size() + 1); }

  void mutate_once(std::string& text) {
    static constexpr std::string_view kTokens[] = {"0",
                                                   "-1",
                                                   "1e999",
                                                   "1e308",
                                                   "18446744073709551615",
                                                   "9223372036854775807",
                                                   "4294967296",
                                                   "null",
                                                   "true",
                                                   "\"\"",
                                                   "{}",
                                                   "[]",
                                                   "[[[[[[[[",
                                                   "{\"a\":",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\\u0000",
                                                   "\\ud800",
                                                   "\xff",
                                                   "\xed\xa0\x80",
                                                   "../",
                                                   "NaN",
                                                   "0.5",
                                                   "65536",
                                                   "2147483648"};
    switch (text.empty() ? 3 : rng_.below(9)) {
      case 0:
        text[rng_.below(text.size())] ^= static_cast<char>(1u << rng_.below(8));
        break;
      case 1:
        text.resize(rng_.below(text.size()));
        break;
      case 2: {
        const size_t begin = rng_.below(text.size());
        text.erase(begin, 1 + rng_.below(16));
        break;
      }
      case 3:
        text.insert(place(text), kTokens[rng_.below(std::size(kTokens))]);
        break;
      case 4: {
        const size_t begin = rng_.below(text.size());
        text.insert(place(text), text.substr(begin, 1 + rng_.below(64)));
        break;
      }
      case 5:
      case 6:
        replace_number(text);
        break;
      case 7: {
        const uint64_t word = rng_.next_u64() >> rng_.below(64);
        const size_t begin = rng_.below(text.size());
        std::memcpy(text.data() + begin, &word, std::min<size_t>(8, text.size() - begin));
        break;
      }
      default:
        text.append(1 + rng_.below(40), static_cast<char>(rng_.below(256)));
    }
  }

  // Puts an awkward number in the place of one that stands in the text.
  void replace_number(std::string& text) {
    static constexpr std::string_view kDigits = "0123456789";
    const size_t begin = text.find_first_of(kDigits, rng_.below(text.size()));
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    static constexpr std::string_view kNumbers[] = {"0",
                                                    "1",
                                                    "2",
                                                    "3",
                                                    "7",
                                                    "8",
                                                    "-1",
                                                    "255",
                                                    "4095",
                                                    "65535",
                                                    "1048577",
                                                    "2147483647",
                                                    "4294967295",
                                                    "9223372036854775807",
                                                    "18446744073709551615",
                                                    "1e30",
                                                    "0.1",
                                                    "1e-320"};
    text.replace(begin, end - begin, kNumbers[rng_.below(std::size(kNumbers))]);
  }

  Rng rng_;
};

}  // namespace jige
