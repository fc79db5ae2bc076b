// What choosing takes: a token from a row of logits, by vocabulary and filters, and experts for
// tokens from the logits of their router.
//
// usage: choice_bench [rounds]
// Logits of tokens are normal with a deviation of 3, and a few stand out, which leaves as few
// likely tokens as there are in texts; those of routers are normal. Microseconds of processor time
// of one thread: the median of rounds in which all cases take turns, with its quartiles.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "machine.h"
#include "ops/experts.h"
#include "ops/sampling.h"
#include "timing.h"

namespace jige::bench {
namespace {

constexpr double kBatchMicroseconds = 300;

struct Filters {
  const char* name;
  ops::SamplingParams params;
};
const Filters kFilters[] = {
    {"likeliest", {.temperature = 0}},
    {"temperature 1", {.temperature = 1}},
    {"top-p 0.95", {.temperature = 1, .top_p = 0.95}},
    {"top-k 64, top-p 0.95", {.temperature = 1, .top_k = 64, .top_p = 0.95}},
    {"min-p 0.05", {.temperature = 1, .min_p = 0.05}}};

struct Case {
  std::string name;
  std::function<void()> call;
  std::vector<double> times;
};

std::vector<float> token_logits(int64_t vocabulary) {
  constexpr double kDeviation = 3;
  Rng rng(static_cast<uint64_t>(vocabulary));
  std::vector<float> logits;
  for (int64_t i = 0; i < vocabulary; ++i) {
    logits.push_back(static_cast<float>(kDeviation * rng.normal()));
  }
  for (const float likely : {20.0f, 19.5f, 18.5f, 18.0f, 17.0f, 16.5f, 16.0f}) {
    logits[rng.below(logits.size())] = likely;
  }
  return logits;
}

void add_tokens(std::vector<Case>& cases, int64_t vocabulary) {
  for (const Filters& filters : kFilters) {
    auto call = [logits = token_logits(vocabulary), rng = Rng(1), &filters]() mutable {
      const auto chosen = ops::sample(logits, filters.params, {}, {}, rng, 0);
      JIGE_CHECK(chosen.has_value(), "{}", chosen.error().message);
    };
    cases.push_back({fmt::format("{} tokens, {}", vocabulary, filters.name), call, {}});
  }
}

TensorView memory_of(std::vector<int32_t>& numbers, int64_t tokens, int64_t each) {
  numbers.resize(static_cast<size_t>(tokens * each));
  return TensorView::of(numbers.data(), DType::kI32, Shape{tokens, each});
}

// A routing of tokens with memory of its own.
struct Routes {
  Routes(int64_t tokens, int64_t experts, int64_t chosen) {
    Rng rng(static_cast<uint64_t>(experts));
    for (int64_t i = 0; i < tokens * experts; ++i) {
      logits.push_back(static_cast<float>(rng.normal()));
    }
    weights.resize(static_cast<size_t>(tokens * chosen));
    routing.logits = TensorView::of(logits.data(), DType::kF32, Shape{tokens, experts});
    routing.chosen = memory_of(numbers[0], tokens, chosen);
    routing.weights = TensorView::of(weights.data(), DType::kF32, Shape{tokens, chosen});
    routing.row_of_place = memory_of(numbers[1], tokens, chosen);
    numbers[2].resize(static_cast<size_t>(tokens * chosen));
    numbers[3].resize(static_cast<size_t>(experts));
    routing.place_of_row = TensorView::of(numbers[2].data(), DType::kI32, Shape{tokens * chosen});
    routing.row_ends = TensorView::of(numbers[3].data(), DType::kI32, Shape{experts});
    routing.normalised = true;
  }
  std::vector<float> logits, weights;
  std::vector<int32_t> numbers[4];
  ops::Routing routing;
};

void add_experts(std::vector<Case>& cases, Machine& machine, int64_t experts, int64_t chosen) {
  for (const int64_t tokens : {1, 64, 1024}) {
    auto routes = std::make_shared<Routes>(tokens, experts, chosen);
    auto call = [routes, &machine] {
      ops::route(*machine.stream, routes->routing);
      machine.stream->synchronize();
    };
    cases.push_back(
        {fmt::format("{} of {} experts, {} tokens", chosen, experts, tokens), call, {}});
  }
}

// Of a call, over calls that fill a batch.
double time_of(const Case& test) {
  const double start = 1e6 * processor_seconds();
  double time = 0;
  for (int64_t calls = 1;; ++calls) {
    test.call();
    time = 1e6 * processor_seconds() - start;
    if (time >= kBatchMicroseconds) return time / static_cast<double>(calls);
  }
}

void run(int rounds) {
  Machine machine(1);
  std::vector<Case> cases;
  for (const int64_t vocabulary : {32000, 151936, 262144}) add_tokens(cases, vocabulary);
  add_experts(cases, machine, 32, 4);
  add_experts(cases, machine, 128, 8);
  fmt::print("{}, {}; us\n", cpu_features().model_name, isa_name(active_isa()));
  for (int round = 0; round < rounds; ++round) {
    for (Case& test : cases) test.times.push_back(time_of(test));
  }
  for (Case& test : cases) {
    std::ranges::sort(test.times);
    const size_t count = test.times.size();
    fmt::print("  {:<36}{:>9.1f}  ({:.1f} to {:.1f})\n", test.name, test.times[count / 2],
               test.times[count / 4], test.times[count * 3 / 4]);
  }
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::run(std::max(argc > 1 ? std::atoi(argv[1]) : 101, 1));
  return 0;
}
