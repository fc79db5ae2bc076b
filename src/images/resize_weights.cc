#include "images/resize_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace jige::images {
namespace {

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

struct Filter {
  double (*value)(double);
  double reach;
};

Filter filter_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBilinear:
      return {triangle, 1};
    case ResizeFilter::kBicubic:
      return {cubic, 2};
    case ResizeFilter::kLanczos:
      return {lanczos, 3};
    case ResizeFilter::kNearest:
      break;
  }
  JIGE_CHECK(false, "the nearest pixel has no weights");
}

int32_t whole_weight(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);  // towards zero
}

}  // namespace

ResizeWeights resize_weights(int32_t src_size, int32_t dst_size, ResizeFilter filter) {
  const Filter shape = filter_of(filter);
  const double scale = static_cast<double>(src_size) / dst_size;
  const double wide = std::max(scale, 1.0);
  const double reach = shape.reach * wide;
  const double narrow = 1.0 / wide;
  ResizeWeights weights;
  weights.taps = 2 * static_cast<int32_t>(std::ceil(reach)) + 2;
  weights.values.resize(static_cast<size_t>(weights.taps) * static_cast<size_t>(dst_size));
  std::vector<double> exact(static_cast<size_t>(weights.taps));
  for (int32_t x = 0; x < dst_size; ++x) {
    const double centre = (x + 0.5) * scale;
    const int32_t begin = std::max(0, static_cast<int32_t>(centre - reach + 0.5));
    const int32_t end = std::min(src_size, static_cast<int32_t>(centre + reach + 0.5));
    const int32_t count = end - begin;
    JIGE_CHECK(count >= 1 && count <= weights.taps, "{} weights of {}", count, weights.taps);
    double sum = 0;
    for (int32_t i = 0; i < count; ++i) {
      exact[static_cast<size_t>(i)] = shape.value((i + begin - centre + 0.5) * narrow);
      sum += exact[static_cast<size_t>(i)];
    }
    int32_t* values = weights.values.data() + static_cast<size_t>(x) * weights.taps;
    for (int32_t i = 0; i < count; ++i) {
      const double weight = exact[static_cast<size_t>(i)];
      values[i] = whole_weight(sum != 0 ? weight / sum : weight);
    }
    weights.begins.push_back(begin);
    weights.counts.push_back(count);
  }
  return weights;
}

}  // namespace jige::images
