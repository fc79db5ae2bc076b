#include "plan/serve_steady.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <ranges>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr size_t kPromptQuantiles = 64;
constexpr int kHalvings = 60;
constexpr double kRowsSure = 10;  // of which one is there
constexpr double kClose = 1e-7;   // relative, of what is halved

int64_t next_tokens_of(const RequestLengths& one) { return one.output_tokens - 1; }

// How many rounds a request has rows in; one that ends with its prompt counts in that one.
double rounds_of(const RequestLengths& one, int64_t round_steps) {
  return static_cast<double>(
      std::max<int64_t>(1, (next_tokens_of(one) + round_steps - 1) / round_steps));
}

// Where an increasing function of [low, high] comes to a value; `high` where it does not.
template <typename F>
double where_reached(double low, double high, double value, const F& f) {
  for (int i = 0; i < kHalvings && high - low > kClose * high; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < value ? low : high) = middle;
  }
  return high;
}

// The mean of what a normal number is above 0.
double mean_above(double mean, double deviation) {
  if (deviation <= 0) return std::max(mean, 0.0);
  const double z = mean / deviation;
  return mean * 0.5 * std::erfc(-z * std::numbers::sqrt2 / 2) +
         deviation * std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
}

struct Weighted {
  double weight = 0;
  double value = 0;
};

// Poisson counts with their probabilities; the rest lies with the last.
std::vector<Weighted> poisson(double mean) {
  std::vector<Weighted> counts;
  const double most = mean + 6 * std::sqrt(mean) + 6;
  double left = 1;
  double probability = std::exp(-mean);
  for (double count = 0; count <= most; ++count) {
    counts.push_back({probability, count});
    left -= probability;
    probability *= mean / (count + 1);
  }
  counts.back().weight += std::max(left, 0.0);
  return counts;
}

// Three sums of tokens that stand for `count` prompts: those of a normal distribution.
std::vector<Weighted> prompt_tokens_of(const LengthModel& lengths, double count) {
  const double mean = count * lengths.prompt_mean();
  const double variance =
      lengths.prompt_square_mean() - lengths.prompt_mean() * lengths.prompt_mean();
  const double far = std::sqrt(3 * count * std::max(variance, 0.0));
  if (far == 0) return {{1, mean}};
  const double low = std::max(mean - far, count);
  // The mean is kept where the low one is cut.
  return {{1.0 / 6, low}, {2.0 / 3, mean}, {1.0 / 6, 2 * mean - low}};
}

}  // namespace

LengthModel::LengthModel(std::span<const RequestLengths> lengths, int32_t block_tokens)
    : lengths_(lengths.begin(), lengths.end()), block_tokens_(block_tokens) {
  JIGE_CHECK(!lengths.empty() && block_tokens > 0, "{} lengths, blocks of {} tokens",
             lengths.size(), block_tokens);
  std::ranges::sort(lengths_, {}, &RequestLengths::prompt_tokens);
  const size_t points = std::min(kPromptQuantiles, lengths_.size());
  for (size_t i = 0; i < points; ++i) {
    const size_t rank = (2 * i + 1) * lengths_.size() / (2 * points);
    prompt_quantiles_.push_back(static_cast<double>(lengths_[rank].prompt_tokens));
  }
  std::ranges::stable_sort(lengths_, {}, &RequestLengths::output_tokens);
  const int64_t longest = lengths_.back().output_tokens;
  JIGE_CHECK(lengths_.front().output_tokens >= 1 && longest <= kLengthModelMax,
             "answers of {} to {} tokens", lengths_.front().output_tokens, longest);
  const double share = 1.0 / static_cast<double>(lengths_.size());
  live_.assign(static_cast<size_t>(longest), 0);
  read_.assign(live_.size(), 0);
  read_square_.assign(live_.size(), 0);
  for (const RequestLengths& one : lengths_) {
    const auto prompt = static_cast<double>(one.prompt_tokens);
    live_[static_cast<size_t>(next_tokens_of(one))] += 1;
    read_[static_cast<size_t>(next_tokens_of(one))] += prompt;
    read_square_[static_cast<size_t>(next_tokens_of(one))] += prompt * prompt;
    steps_mean_ += share * static_cast<double>(next_tokens_of(one));
    prompt_mean_ += share * prompt;
    prompt_square_mean_ += share * prompt * prompt;
    pairs_mean_ += share * prompt * (prompt + 1) / 2;
  }
  // From what ends with an iteration to what is there in it.
  for (size_t j = live_.size() - 1; j > 0; --j) {
    live_[j - 1] += live_[j];
    read_[j - 1] += read_[j];
    read_square_[j - 1] += read_square_[j];
  }
  for (size_t j = 0; j < live_.size(); ++j) {
    const auto step = static_cast<double>(j);
    live_[j] *= share;
    read_square_[j] = share * (read_square_[j] + 2 * step * read_[j]) + step * step * live_[j];
    read_[j] = share * read_[j] + step * live_[j];
    if (j == 0) continue;
    read_mean_ += read_[j];
    read_square_mean_ += read_square_[j];
  }
}

int64_t LengthModel::blocks(const RequestLengths& one) const {
  return (one.prompt_tokens + one.output_tokens + block_tokens_ - 1) / block_tokens_;
}

int64_t LengthModel::output_quantile(double share) const {
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(lengths_.size())));
  return lengths_[static_cast<size_t>(std::clamp<int64_t>(rank, 1, std::ssize(lengths_)) - 1)]
      .output_tokens;
}

namespace {

// The steady state of a policy, by how many are inside.
class SteadySolver {
 public:
  SteadySolver(const LengthModel& lengths, const SteadyOptions& options, const StepSeconds& seconds)
      : lengths_(lengths), options_(options), seconds_of_(seconds) {}

  SteadyState solve() const {
    double most = std::min<double>(options_.batch_requests_max, inside_by_blocks());
    if (options_.users > 0) most = std::min(most, options_.users);
    SteadyState state;
    state.carried = most > 0;
    if (!state.carried) return state;
    state = at(most);
    const double rate_most = state.requests_per_s;
    if (options_.rate_per_s > 0) {
      state.carried = rate_most >= options_.rate_per_s;
      if (state.carried) {
        state = at(where_reached(0, most, options_.rate_per_s,
                                 [&](double inside) { return at(inside).requests_per_s; }));
      }
    }
    finish(state, rate_most);
    return state;
  }

 private:
  SteadyState at(double inside) const {
    switch (options_.policy) {
      case ServePolicy::kOrca:
      case ServePolicy::kChunked:
        return by_iteration(inside);
      case ServePolicy::kStatic:
        return by_batch(inside);
      case ServePolicy::kRounds:
        break;
    }
    return by_round(inside);
  }

  // Of the blocks about half of what the next request needs is idle: it is let in whole or not at
  // all, and it is large ones that wait.
  double inside_by_blocks() const {
    const auto blocks_of = [this](const RequestLengths& one) {
      return static_cast<double>(lengths_.blocks(one));
    };
    const double mean = lengths_.mean(blocks_of);
    const double square =
        lengths_.mean([&](const RequestLengths& one) { return blocks_of(one) * blocks_of(one); });
    // Who is inside is biased by how long it stays.
    const auto stay_of = [this](const RequestLengths& one) {
      if (options_.policy == ServePolicy::kStatic) return 1.0;
      if (options_.policy == ServePolicy::kRounds) return rounds_of(one, options_.round_steps);
      return static_cast<double>(one.output_tokens);
    };
    const double promised = lengths_.mean([&](const RequestLengths& one) {
      return blocks_of(one) * stay_of(one);
    }) / lengths_.mean(stay_of);
    const auto all = static_cast<double>(options_.block_count);
    const double most = (all - (square / mean - 1) / 2) / promised;
    const double largest = std::ranges::max(lengths_.all() | std::views::transform(blocks_of));
    return all < largest ? 0 : std::max(most, 1.0);
  }

  // Prompts alone, whole. Fewer than one: now and then one.
  double prompts_seconds(double count) const {
    if (count < 1) return count * prompts_seconds(1);
    double mean_s = 0;
    for (const auto& [weight, tokens] : prompt_tokens_of(lengths_, count)) {
      mean_s += weight * seconds_of_(prompt_load(count, tokens));
    }
    return mean_s;
  }
  StepLoad prompt_load(double count, double tokens) const {
    return {.prompts = count,
            .prompt_tokens = tokens,
            .kv_tokens = tokens,
            .pairs = tokens * lengths_.pairs_mean() / lengths_.prompt_mean()};
  }

  // A next token sees all that its sequence reads.
  static StepLoad next_load(double rows, double tokens) {
    return {.next_rows = rows, .kv_tokens = tokens, .pairs = tokens};
  }

  SteadyState by_round(double inside) const {
    SteadyState state;
    state.prompts = prompts_of_round(inside);
    state.inside = state.prompts * lengths_.mean([this](const RequestLengths& one) {
      return rounds_of(one, options_.round_steps);
    });
    state.prompts_s = prompts_seconds(state.prompts);
    state.cycle_s = state.prompts_s;
    const int64_t steps = options_.round_steps;
    double rows_sum = 0, tokens_sum = 0, count = 0;
    state.steps_s.reserve(static_cast<size_t>(steps));
    for (int64_t u = 1; u <= std::min(steps, lengths_.steps_max()); ++u) {
      double rows = 0, tokens = 0, squares = 0;
      for (int64_t j = u; j <= lengths_.steps_max(); j += steps) {
        rows += state.prompts * lengths_.live(j);
        tokens += state.prompts * lengths_.read(j);
        squares += state.prompts * lengths_.read_square(j);
      }
      // Where nobody is left the next round begins.
      const double any = rows > kRowsSure ? 1 : any_in_round(state.prompts, u);
      if (!(any > 0)) break;
      const double step_s = seconds_of_(next_load(rows / any, tokens / any));
      state.steps_s.push_back(step_s);
      state.cycle_s += any * step_s;
      count += any;
      rows_sum += rows;
      tokens_sum += tokens;
      add_blocks(state, rows / any, tokens / any, squares / any);
      if (u == 1) {
        add_round_gaps(state, rows);
      } else {
        state.gaps.push_back({step_s, rows});
      }
    }
    state.next_rows = count > 0 ? rows_sum / count : 0;
    state.kv_tokens = count > 0 ? tokens_sum / count : 0;
    state.requests_per_s = state.prompts / state.cycle_s;
    state.first_s = state.prompts_s;
    return state;
  }

  // As many as there are places for, in the mean of their number, which varies with who of earlier
  // rounds is left: at most round_prompts.
  double prompts_of_round(double inside) const {
    double left = 0, variance = 0;  // of one that began in each earlier round
    const int64_t steps = options_.round_steps;
    for (int64_t j = steps + 1; j <= lengths_.steps_max(); j += steps) {
      left += lengths_.live(j);
      variance += lengths_.live(j) * (1 - lengths_.live(j));
    }
    const double most = options_.round_prompts;
    return where_reached(0, most, 0, [&](double prompts) {
      const double places = inside - prompts * left;
      // Where fewer begin more places are left for later ones, so it varies less than alone.
      const double deviation = std::sqrt(prompts * variance / 2);
      return prompts - (most - mean_above(most - places, deviation));
    });
  }

  // Whether anybody of all rounds has a row in a round's iteration.
  double any_in_round(double prompts, int64_t iteration) const {
    double none = 0;  // its logarithm
    for (int64_t j = iteration; j <= lengths_.steps_max(); j += options_.round_steps) {
      if (lengths_.live(j) >= 1) return 1;
      none += std::log1p(-lengths_.live(j));
    }
    return -std::expm1(std::max(prompts, 1.0) * none);
  }

  // The first iteration behind prompts: who was inside before has waited for them.
  void add_round_gaps(SteadyState& state, double rows) const {
    const double newcomers = state.prompts * (lengths_.steps_max() > 0 ? lengths_.live(1) : 0);
    state.gaps.push_back({state.steps_s[0], newcomers});
    const double count = std::max(state.prompts, 1.0);
    const double often = std::min(state.prompts, 1.0) * (rows - newcomers);
    for (const auto& [weight, tokens] : prompt_tokens_of(lengths_, count)) {
      state.gaps.push_back(
          {state.steps_s[0] + seconds_of_(prompt_load(count, tokens)), weight * often});
    }
    if (state.prompts < 1) {
      state.gaps.push_back({state.steps_s[0], (1 - state.prompts) * (rows - newcomers)});
    }
  }

  // Orca's prompts run whole; those of chunked get what next tokens leave.
  SteadyState by_iteration(double inside) const {
    const bool chunked = options_.policy == ServePolicy::kChunked;
    SteadyState state;
    state.inside = inside;
    double prompt_iterations = 1;
    state.prompts = inside / (lengths_.steps_mean() + 1);
    if (chunked) {
      const double most =
          options_.batch_tokens_max / (lengths_.prompt_mean() + lengths_.steps_mean());
      state.prompts = where_reached(0, most, inside, [&](double prompts) {
        return prompts * (lengths_.steps_mean() + iterations_of_prompt(prompts, inside));
      });
      prompt_iterations = iterations_of_prompt(state.prompts, inside);
    }
    state.next_rows = state.prompts * lengths_.steps_mean();
    state.kv_tokens = state.prompts * (lengths_.read_mean() + lengths_.prompt_mean());
    const double room = chunked ? options_.batch_tokens_max - state.next_rows : INFINITY;
    add_iteration_gaps(state, room);
    state.cycle_s = state.gap_mean_s();
    state.steps_s = {state.cycle_s};
    state.requests_per_s = state.prompts / state.cycle_s;
    state.first_s = prompt_iterations * state.cycle_s;
    if (!chunked) {  // its own prompt beside those of others
      const double prompts = state.prompts + 1;
      state.first_s = iteration_seconds(state, prompts, prompts * lengths_.prompt_mean());
    }
    add_blocks(state, state.next_rows + state.prompts * prompt_iterations, state.kv_tokens,
               state.prompts * (lengths_.read_square_mean() + lengths_.prompt_square_mean()));
    return state;
  }

  double iteration_seconds(const SteadyState& state, double prompts, double tokens) const {
    StepLoad load = prompt_load(prompts, tokens);
    const double read = state.prompts * lengths_.read_mean();
    load.next_rows = state.next_rows;
    load.kv_tokens += read;
    load.pairs += read;
    return seconds_of_(load);
  }

  // Iterations until a prompt has its first token, where so many begin in each: its pieces, and a
  // wait behind the prompts of others, exponential with the mean of a queue with random arrivals.
  double iterations_of_prompt(double prompts, double inside) const {
    const double room = options_.batch_tokens_max - prompts * lengths_.steps_mean();
    if (room <= 0) return INFINITY;
    const double others = prompts * std::max(inside - 1, 0.0) / inside;
    const double busy = others * lengths_.prompt_mean() / room;
    if (busy >= 1) return INFINITY;
    const double wait =
        lengths_.prompt_square_mean() / lengths_.prompt_mean() / room / (2 * (1 - busy));
    double sum = 0;
    for (const double tokens : lengths_.prompt_quantiles()) {
      const double pieces = std::ceil(tokens / room);
      sum += pieces + busy * std::exp((tokens / room - pieces) / wait) / (1 - std::exp(-1 / wait));
    }
    return sum / static_cast<double>(lengths_.prompt_quantiles().size());
  }

  // Iterations by the prompts that begin in them. What does not fit into the room fills others.
  void add_iteration_gaps(SteadyState& state, double room) const {
    double tokens_mean = 0;
    for (const auto& [often, count] : poisson(state.prompts)) {
      for (const auto& [weight, wanted] : prompt_tokens_of(lengths_, count)) {
        const double tokens = std::min(wanted, room);
        tokens_mean += often * weight * tokens;
        state.gaps.push_back({iteration_seconds(state, count, tokens), often * weight});
      }
    }
    const double left = state.prompts * lengths_.prompt_mean() - tokens_mean;
    if (!std::isfinite(room) || !(left > 0) || room <= tokens_mean) return;
    const double full = std::min(left / (room - tokens_mean), 1.0);
    for (SteadyGap& gap : state.gaps) gap.weight *= 1 - full;
    state.gaps.push_back({iteration_seconds(state, state.prompts, room), full});
  }

  SteadyState by_batch(double inside) const {
    SteadyState state;
    state.inside = state.prompts = inside;
    state.first_s = prompts_seconds(inside);
    state.cycle_s = state.first_s;
    double rows_sum = 0, tokens_sum = 0, iterations = 0;
    for (int64_t j = 1; j <= lengths_.steps_max(); ++j) {
      // Whether anybody of the batch has so much to say.
      const double any = 1 - std::pow(std::max(1 - lengths_.live(j), 0.0), std::max(inside, 1.0));
      if (!(any > 0)) break;
      const StepLoad load =
          next_load(inside * lengths_.live(j) / any, inside * lengths_.read(j) / any);
      const double step_s = seconds_of_(load);
      state.cycle_s += any * step_s;
      iterations += any;
      rows_sum += any * load.next_rows;
      tokens_sum += any * load.kv_tokens;
      add_blocks(state, load.next_rows, load.kv_tokens, inside * lengths_.read_square(j) / any);
      state.gaps.push_back({step_s, any * load.next_rows});
    }
    state.next_rows = iterations > 0 ? rows_sum / iterations : 0;
    state.kv_tokens = iterations > 0 ? tokens_sum / iterations : 0;
    state.requests_per_s = inside / state.cycle_s;
    return state;
  }

  // The most of several moments. A sequence's last block is half full.
  void add_blocks(SteadyState& state, double rows, double tokens, double squares) const {
    const double size = lengths_.block_tokens();
    const double blocks = (tokens + rows * (size - 1) / 2) / size;
    if (blocks <= state.blocks_mean) return;
    state.blocks_mean = blocks;
    state.blocks_peak = blocks + 3 * std::sqrt(squares) / size;
  }

  void finish(SteadyState& state, double rate_most) const {
    state.policy = options_.policy;
    state.output_tokens_per_s = state.requests_per_s * (lengths_.steps_mean() + 1);
    state.answer_s = lengths_.mean(
        [&](const RequestLengths& one) { return state.latency_s(one.output_tokens); });
    if (options_.users > 0) {  // who is not inside waits
      state.wait_s = std::max(0.0, options_.users / state.requests_per_s - state.answer_s);
    } else if (options_.rate_per_s > 0) {
      // Half a cycle, and a queue where little is left.
      const double busy = std::min(state.requests_per_s / rate_most, 0.999);
      state.wait_s = state.cycle_s * (0.5 + busy * busy / (1 - busy));
    }
    std::ranges::sort(state.gaps, {}, &SteadyGap::seconds);
    state.blocks_peak = std::min<double>(options_.block_count, state.blocks_peak);
  }

  const LengthModel& lengths_;
  const SteadyOptions& options_;
  const StepSeconds& seconds_of_;
};

}  // namespace

double SteadyState::latency_s(int64_t output_tokens) const {
  const int64_t steps = output_tokens - 1;
  if (policy == ServePolicy::kStatic) return cycle_s;
  if (policy != ServePolicy::kRounds) return first_s + static_cast<double>(steps) * cycle_s;
  const int64_t round = std::ssize(steps_s);
  if (steps == 0 || round == 0) return prompts_s;
  const int64_t whole = (steps - 1) / round;
  double last_s = prompts_s;
  for (int64_t u = 0; u < steps - whole * round; ++u) last_s += steps_s[static_cast<size_t>(u)];
  return static_cast<double>(whole) * cycle_s + last_s;
}

double SteadyState::gap_mean_s() const {
  double sum = 0, weights = 0;
  for (const SteadyGap& gap : gaps) {
    sum += gap.weight * gap.seconds;
    weights += gap.weight;
  }
  return weights > 0 ? sum / weights : 0;
}

double SteadyState::gap_quantile_s(double share) const {
  double weights = 0;
  for (const SteadyGap& gap : gaps) weights += gap.weight;
  double below = 0;
  for (const SteadyGap& gap : gaps) {
    below += gap.weight;
    if (below >= share * weights) return gap.seconds;
  }
  return gaps.empty() ? 0 : gaps.back().seconds;
}

SteadyState steady_state(const LengthModel& lengths, const SteadyOptions& options,
                         const StepSeconds& seconds_of) {
  return SteadySolver(lengths, options, seconds_of).solve();
}

}  // namespace jige::plan
