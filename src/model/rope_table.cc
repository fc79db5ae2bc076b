#include "model/rope_table.h"

#include <cmath>
#include <numbers>

namespace jige::model {
namespace {

double scaled_frequency(const formats::RopeConfig& config, double frequency) {
  switch (config.scaling) {
    case formats::RopeScaling::kNone:
      return frequency;
    case formats::RopeScaling::kLinear:
      return frequency / config.factor;
    case formats::RopeScaling::kLlama3:
      break;
  }
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double context = static_cast<double>(config.original_context);
  if (wavelength < context / config.high_freq_factor) return frequency;
  if (wavelength > context / config.low_freq_factor) return frequency / config.factor;
  const double smooth = (context / wavelength - config.low_freq_factor) /
                        (config.high_freq_factor - config.low_freq_factor);
  return frequency * ((1.0 - smooth) / config.factor + smooth);
}

}  // namespace

std::vector<double> rope_inverse_frequencies(const formats::RopeConfig& config, int64_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    frequencies[i] = scaled_frequency(config, std::pow(config.theta, -exponent));
  }
  return frequencies;
}

std::vector<float> make_rope_table(const formats::RopeConfig& config, int64_t head_dim,
                                   int64_t position_count) {
  const std::vector<double> frequencies = rope_inverse_frequencies(config, head_dim);
  const size_t half = frequencies.size();
  std::vector<float> table(static_cast<size_t>(position_count) * 2 * half);
  for (size_t position = 0; position < static_cast<size_t>(position_count); ++position) {
    float* row = table.data() + position * 2 * half;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace jige::model
