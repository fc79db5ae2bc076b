// ExactSum: a sum of f32 values whose bits do not depend on the order of addition.
//
// Every value is cut to a multiple of 2^-64 and added to a 128-bit integer, so additions commute
// and associate: any order, any grouping, any number of partial sums merged later give one result.
// A value whose magnitude is at least 2^-41 loses nothing; smaller ones lose less than 2^-64 each.
// Values that are not finite, or of magnitude 2^47 and more, are counted instead and make the sum
// NaN. With fewer than 2^16 values at that bound, and as many more as they are smaller, nothing
// overflows: 2^47 · 2^64 · 2^16 = 2^127.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace jige {

class ExactSum {
 public:
  void add(float value);
  void add(std::span<const float> values);
  // Adds another sum, as if its values had been added here.
  void merge(const ExactSum& other);

  // The sum rounded to double; NaN when a value could not be added.
  double value() const;
  // The whole state, for another process, and back.
  std::array<uint64_t, 3> words() const;
  static ExactSum from_words(const std::array<uint64_t, 3>& words);
  // How many values were not finite or too large.
  int64_t refused_count() const { return refused_count_; }

 private:
  __extension__ using Wide = __int128;
  Wide units_ = 0;  // of 2^-64
  int64_t refused_count_ = 0;
};

}  // namespace jige
