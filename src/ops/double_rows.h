// Rows of double-precision numbers in vectors, for definitions that are written out in tests.
//
// Included by tests only. Threads: values.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace jige::ops::test {

// In eight sums, since each addition waits for the one before; the last of them has the rest.
inline double dot(const double* a, const double* b, int64_t count) {
  __m256d low = _mm256_setzero_pd();
  __m256d high = low;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    low = _mm256_fmadd_pd(_mm256_loadu_pd(a + i), _mm256_loadu_pd(b + i), low);
    high = _mm256_fmadd_pd(_mm256_loadu_pd(a + i + 4), _mm256_loadu_pd(b + i + 4), high);
  }
  double sums[4];
  _mm256_storeu_pd(sums, _mm256_add_pd(low, high));
  for (; i < count; ++i) sums[3] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline void add_scaled(double* sum, const double* row, double scale, int64_t count) {
  const __m256d scales = _mm256_set1_pd(scale);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256d now = _mm256_loadu_pd(sum + i);
    _mm256_storeu_pd(sum + i, _mm256_fmadd_pd(scales, _mm256_loadu_pd(row + i), now));
  }
  for (; i < count; ++i) sum[i] += scale * row[i];
}

}  // namespace jige::ops::test
