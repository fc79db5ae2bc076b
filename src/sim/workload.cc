#include "sim/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace jige::sim {
namespace {

// Marsaglia and Tsang's method; a shape below one is raised by one and corrected.
double draw_gamma(double shape, Rng& rng) {
  if (shape < 1) {
    const double correction = std::pow(1 - rng.uniform(), 1 / shape);
    return draw_gamma(shape + 1, rng) * correction;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = rng.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - rng.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// The exact inverse for the ordinary case: one draw a gap.
double draw_gap(double shape, Rng& rng) {
  return shape == 1 ? -std::log(1 - rng.uniform()) : draw_gamma(shape, rng) / shape;
}

template <typename T>
bool read_number(std::string_view text, T& number) {
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end && !text.empty();
}

bool parse_log_normal(std::string_view text, LengthDistribution& length) {
  constexpr std::string_view kName = "lognormal:";
  if (!text.starts_with(kName)) return false;
  text.remove_prefix(kName.size());
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  length.high = kLengthMax;
  return read_number(text.substr(0, colon), length.median) &&
         read_number(text.substr(colon + 1), length.sigma) && length.median >= 1 &&
         length.median <= kLengthMax && length.sigma >= 0 && length.sigma <= 10;
}

bool parse_uniform(std::string_view text, LengthDistribution& length) {
  const size_t colon = text.find(':');
  if (!read_number(text.substr(0, colon), length.low)) return false;
  length.high = length.low;
  if (colon != std::string_view::npos && !read_number(text.substr(colon + 1), length.high)) {
    return false;
  }
  return 1 <= length.low && length.low <= length.high && length.high <= kLengthMax;
}

Result<int64_t> token_count(const Json& line, std::string_view field, std::string_view where) {
  JIGE_TRY(const int64_t count, get_int(line, field, where));
  if (1 <= count && count <= kLengthMax) return count;
  return fail(Code::kCorrupt, "{}: {} is {}; it must be in 1..{}", where, field, count, kLengthMax);
}

}  // namespace

int64_t LengthDistribution::draw(Rng& rng) const {
  if (median <= 0)
    return low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
  // Cut while it is a floating-point number: the tail may lie beyond all integers.
  const double drawn = std::round(median * std::exp(sigma * rng.normal()));
  return static_cast<int64_t>(
      std::clamp(drawn, static_cast<double>(low), static_cast<double>(high)));
}

Result<LengthDistribution> parse_length(std::string_view text, std::string_view flag) {
  LengthDistribution length;
  if (parse_log_normal(text, length)) return length;
  length = {};
  if (parse_uniform(text, length)) return length;
  return fail(Code::kInvalidArgument,
              "{}: \"{}\" is no length; give a number such as 128, a range such as 32:512, or "
              "lognormal:MEDIAN:SIGMA, with 1 to {} tokens",
              flag, text, kLengthMax);
}

LengthPair orca_lengths() {
  return {.prompt = {.low = 32, .high = 512}, .output = {.low = 1, .high = 128}};
}

// The mean of a log-normal is median * exp(sigma^2 / 2).
LengthPair chat_lengths() {
  return {.prompt = {.low = 1, .high = kLengthMax, .median = 69, .sigma = 1.3},
          .output = {.low = 1, .high = kLengthMax, .median = 205, .sigma = 1.0}};
}

Workload make_workload(const WorkloadOptions& options) {
  Rng gaps(derive_key(options.seed, "load arrivals"));
  Rng lengths(derive_key(options.seed, "load lengths"));
  Workload load;
  load.requests.reserve(static_cast<size_t>(options.request_count));
  double now_s = 0;
  for (int64_t i = 0; i < options.request_count; ++i) {
    RequestShape shape;
    if (options.rate_per_s > 0) now_s += draw_gap(options.burst_shape, gaps) / options.rate_per_s;
    shape.arrival_s = now_s;
    shape.prompt_tokens = options.lengths.prompt.draw(lengths);
    shape.output_tokens = options.lengths.output.draw(lengths);
    load.requests.push_back(shape);
  }
  return load;
}

Result<RequestShape> parse_trace_line(std::string_view line, std::string_view where) {
  JIGE_TRY(const Json json, parse_json(line, where));
  if (!json.is_object()) {
    return fail(Code::kCorrupt,
                "{}: must be an object such as {{\"arrival_s\": 0.5, \"prompt_tokens\": 100, "
                "\"output_tokens\": 20}}",
                where);
  }
  RequestShape shape;
  JIGE_TRY(shape.arrival_s, get_number(json, "arrival_s", where));
  JIGE_TRY(shape.prompt_tokens, token_count(json, "prompt_tokens", where));
  JIGE_TRY(shape.output_tokens, token_count(json, "output_tokens", where));
  if (shape.arrival_s >= 0 && shape.arrival_s <= 1e9) return shape;
  return fail(Code::kCorrupt, "{}: arrival_s is {}; it must be in 0..1e9", where, shape.arrival_s);
}

void rescale_arrivals(std::vector<RequestShape>& requests, double rate_per_s) {
  if (requests.empty()) return;
  const double first_s = requests.front().arrival_s;
  const double span_s = requests.back().arrival_s - first_s;
  const double wanted_s = rate_per_s > 0 ? static_cast<double>(requests.size()) / rate_per_s : 0;
  const double factor = span_s > 0 ? wanted_s / span_s : 0;
  for (RequestShape& shape : requests) shape.arrival_s = (shape.arrival_s - first_s) * factor;
}

void cut_to_context(Workload& load, int64_t context_max) {
  for (RequestShape& shape : load.requests) {
    const RequestShape asked = shape;
    shape.prompt_tokens = std::min(shape.prompt_tokens, std::max<int64_t>(context_max - 1, 1));
    shape.output_tokens =
        std::min(shape.output_tokens, std::max<int64_t>(context_max - shape.prompt_tokens, 1));
    load.cut_count +=
        shape.prompt_tokens != asked.prompt_tokens || shape.output_tokens != asked.output_tokens;
  }
}

std::vector<int32_t> random_prompt(uint64_t key, uint64_t index, int64_t count,
                                   int64_t vocab_size) {
  Rng rng(derive_key(key, "load prompt", index));
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

}  // namespace jige::sim
