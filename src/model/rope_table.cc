#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace jige::model {
namespace {

double scaled_frequency(const formats::RopeConfig& config, double frequency) {
  switch (config.scaling) {
    case formats::RopeScaling::kNone:
    case formats::RopeScaling::kLongRope:  // has a factor for each
    case formats::RopeScaling::kYarn:      // goes by the pair
    case formats::RopeScaling::kNtk:       // another theta
      return frequency;
    case formats::RopeScaling::kLinear:
    case formats::RopeScaling::kProportional:  // of pairs that turn
      return frequency / config.factor;
    case formats::RopeScaling::kLlama3:
      break;
  }
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double context = static_cast<double>(config.original_context);
  if (wavelength < context / config.high_freq_factor) return frequency;
  if (wavelength >= context / config.low_freq_factor) return frequency / config.factor;
  const double smooth = (context / wavelength - config.low_freq_factor) /
                        (config.high_freq_factor - config.low_freq_factor);
  return frequency * ((1.0 - smooth) / config.factor + smooth);
}

// Where yarn divides frequencies: not before the first pair, wholly behind the last.
struct YarnRamp {
  double first;
  double last;
};

YarnRamp yarn_ramp(const formats::RopeConfig& config, int64_t turned) {
  const auto columns = static_cast<double>(turned);
  const auto pair_of = [&](double turns) {
    const double wave =
        static_cast<double>(config.original_context) / (turns * 2 * std::numbers::pi);
    return columns * std::log(wave) / (2 * std::log(config.theta));
  };
  YarnRamp ramp{pair_of(config.beta_fast), pair_of(config.beta_slow)};
  if (config.truncate) ramp = {std::floor(ramp.first), std::ceil(ramp.last)};
  ramp = {std::max(ramp.first, 0.0), std::min(ramp.last, columns - 1)};
  constexpr double kLeastLength = 0.001;
  if (ramp.first == ramp.last) ramp.last += kLeastLength;
  return ramp;
}

void scale_yarn(const formats::RopeConfig& config, int64_t turned,
                std::vector<double>& frequencies) {
  const YarnRamp ramp = yarn_ramp(config, turned);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double at = (static_cast<double>(i) - ramp.first) / (ramp.last - ramp.first);
    const double share = std::clamp(at, 0.0, 1.0);
    frequencies[i] *= 1.0 - share + share / config.factor;
  }
}

struct Turning {
  double growth = 0;     // of the size with the position
  double direction = 1;  // or -1
};

std::vector<float> table_of(const formats::RopeConfig& config, int64_t turned,
                            int64_t position_count, const Turning& turning) {
  const std::vector<double> frequencies = rope_inverse_frequencies(config, turned, position_count);
  const size_t half = frequencies.size();
  std::vector<float> table(static_cast<size_t>(position_count) * 2 * half);
  for (size_t position = 0; position < static_cast<size_t>(position_count); ++position) {
    float* row = table.data() + position * 2 * half;
    double size = config.attention_factor;
    if (turning.growth > 0.0) {
      const size_t contexts = position / static_cast<size_t>(config.original_context);
      size *= 1.0 + turning.growth * std::log1p(static_cast<double>(contexts));
    }
    for (size_t i = 0; i < half; ++i) {
      const double angle = turning.direction * static_cast<double>(position) * frequencies[i];
      row[i] = static_cast<float>(size * std::cos(angle));
      row[half + i] = static_cast<float>(size * std::sin(angle));
    }
  }
  return table;
}

// Heads of latents turn in part, and their queries grow as a whole.
bool latents_grow(const formats::ModelConfig& config) {
  return config.latent.rank > 0 && config.rope.query_growth > 0.0;
}

// Cosines and sines of angle 0, times what queries come times.
std::vector<float> growth_table(const formats::ModelConfig& config, int64_t position_count) {
  formats::QueryGrowthConfig growth = config.query_growth;
  const int64_t ahead = latents_grow(config) ? 0 : 1;
  if (latents_grow(config)) {
    growth = {.rate = config.rope.query_growth, .context = config.rope.original_context};
  }
  std::vector<float> table;
  table.reserve(static_cast<size_t>(position_count * config.head_dim));
  const auto half = static_cast<size_t>(config.head_dim / 2);
  for (int64_t position = 0; position < position_count; ++position) {
    const auto contexts = static_cast<double>((position + ahead) / growth.context);
    const double size = 1.0 + growth.rate * std::log1p(contexts);
    table.insert(table.end(), half, static_cast<float>(size));
    table.insert(table.end(), half, 0.0f);
  }
  return table;
}

// One of the tables that stand side by side.
struct Columns {
  int64_t count;
  std::vector<float> rows;
};

}  // namespace

TurnedColumns turned_columns(const formats::ModelConfig& config) {
  if (config.position != formats::PositionKind::kRotary) return {};
  const auto& unturned = config.layer_is_unturned;
  const bool none = !unturned.empty() &&
                    std::find(unturned.begin(), unturned.end(), uint8_t{0}) == unturned.end();
  if (none) return {};
  const int64_t usual = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
  const int64_t full = config.full_heads.head_dim;
  return {.full = full > 0 ? full : usual, .sliding = usual};
}

int64_t growth_begin(const formats::ModelConfig& config) {
  if (config.query_growth.rate == 0 && !latents_grow(config)) return -1;
  const TurnedColumns turned = turned_columns(config);
  return turned.full + (has_two_rope_tables(config) ? turned.sliding : 0);
}

int64_t rope_columns(const formats::ModelConfig& config) {
  const int64_t begin = growth_begin(config);
  if (begin >= 0) return begin + config.head_dim;
  const TurnedColumns turned = turned_columns(config);
  return turned.full + (has_two_rope_tables(config) ? turned.sliding : 0);
}

bool has_two_rope_tables(const formats::ModelConfig& config) {
  const TurnedColumns turned = turned_columns(config);
  const bool turned_queries_grow = config.rope.query_growth > 0.0 && !latents_grow(config);
  return config.sliding_rope || turned_queries_grow || turned.full != turned.sliding;
}

std::vector<double> rope_inverse_frequencies(const formats::RopeConfig& config, int64_t turned,
                                             int64_t position_count) {
  std::vector<double> frequencies(static_cast<size_t>(turned / 2));
  const bool ntk = config.scaling == formats::RopeScaling::kNtk;
  const double theta = ntk ? config.theta * config.factor : config.theta;
  const double all = ntk ? std::pow(config.factor, -2.0 / static_cast<double>(turned)) : 1.0;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(turned);
    frequencies[i] = scaled_frequency(config, all * std::pow(theta, -exponent));
  }
  if (config.scaling == formats::RopeScaling::kYarn) scale_yarn(config, turned, frequencies);
  if (config.scaling == formats::RopeScaling::kProportional) {
    const double count = std::floor(config.turned_share * static_cast<double>(turned) / 2.0);
    std::fill(frequencies.begin() + static_cast<std::ptrdiff_t>(count), frequencies.end(), 0.0);
  }
  if (config.scaling == formats::RopeScaling::kLongRope) {
    const bool beyond = position_count > config.original_context;
    const std::vector<double>& factors = beyond ? config.long_factors : config.short_factors;
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
  }
  return frequencies;
}

std::vector<float> make_rope_table(const formats::RopeConfig& config, int64_t turned,
                                   int64_t position_count) {
  return table_of(config, turned, position_count, {});
}

std::vector<float> make_rope_table(const formats::ModelConfig& config, int64_t position_count) {
  const TurnedColumns turned = turned_columns(config);
  Turning turning;
  if (config.turns_backwards) turning.direction = -1;
  std::vector<Columns> tables = {
      {turned.full, table_of(config.rope, turned.full, position_count, turning)}};
  if (has_two_rope_tables(config)) {
    if (!config.sliding_rope) turning.growth = config.rope.query_growth;
    tables.push_back({turned.sliding, table_of(config.sliding_rope.value_or(config.rope),
                                               turned.sliding, position_count, turning)});
  }
  if (growth_begin(config) >= 0) {
    tables.push_back({config.head_dim, growth_table(config, position_count)});
  }
  if (tables.size() == 1) return std::move(tables[0].rows);
  std::vector<float> all;
  all.reserve(static_cast<size_t>(position_count * rope_columns(config)));
  for (int64_t row = 0; row < position_count; ++row) {
    for (const Columns& one : tables) {
      const auto begin = one.rows.begin() + row * one.count;
      all.insert(all.end(), begin, begin + one.count);
    }
  }
  return all;
}

}  // namespace jige::model
