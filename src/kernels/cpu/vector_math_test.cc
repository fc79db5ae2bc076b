#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "base/cpu.h"
#include "kernels/cpu/elementwise.h"

namespace jige::cpu {
namespace {

// Every `kStep`-th float: 200 thousand of them, of both signs and every exponent.
constexpr uint32_t kStep = 20011;

std::vector<float> sampled_floats() {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += kStep) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float special : {0.0f, 1.0f, 88.72283f, 88.72284f, 103.97208f, 103.98f, 0.625f, 0.89f,
                              4.0f, std::numeric_limits<float>::max(), 0x1p-126f, 0x1p-149f,
                              infinity, std::numeric_limits<float>::quiet_NaN()}) {
    floats.push_back(special);
    floats.push_back(-special);
  }
  return floats;
}

// The difference in units of the last place of the expected value.
double ulps(float actual, double expected) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  return std::fabs(static_cast<double>(actual) - expected) /
         std::ldexp(1.0, std::max(exponent - 24, -149));
}

struct Function {
  const char* name;
  VectorMath::Function VectorMath::*kernel;
  double (*exact)(double);
  double ulps_max;
  double normal_min;  // smaller results are not counted
};

const Function kFunctions[] = {
    {"exp", &VectorMath::exp, [](double x) { return std::exp(x); }, 1.0, 0},
    {"log", &VectorMath::log, [](double x) { return x < 0 ? NAN : std::log(x); }, 1.0, 0},
    {"tanh", &VectorMath::tanh, [](double x) { return std::tanh(x); }, 2.0, 0},
    {"sigmoid", &VectorMath::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.5,
     0x1p-126},
    {"erf", &VectorMath::erf, [](double x) { return std::erf(x); }, 1.5, 0},
};

TEST(VectorMath, KeepsItsAccuracyOverAllFloats) {
  const std::vector<float> inputs = sampled_floats();
  const auto count = static_cast<int64_t>(inputs.size());
  for (const Isa isa : supported_isas()) {
    for (const Function& function : kFunctions) {
      std::vector<float> results(inputs.size());
      (vector_math(isa).*function.kernel)(results.data(), inputs.data(), count);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const double expected = function.exact(inputs[i]);
        const auto rounded = static_cast<float>(expected);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(results[i])) << function.name << "(" << inputs[i] << ")";
        } else if (std::isinf(rounded)) {
          ASSERT_EQ(results[i], rounded) << function.name << "(" << inputs[i] << ")";
        } else if (std::fabs(expected) >= function.normal_min) {
          ASSERT_LE(ulps(results[i], expected), function.ulps_max)
              << function.name << "(" << inputs[i] << ") is " << results[i];
        }
      }
    }
  }
}

TEST(VectorMath, HasTheSameBitsInEveryInstructionSetAndAtEveryLength) {
  std::vector<float> inputs = sampled_floats();
  inputs.resize(3000);
  for (const Function& function : kFunctions) {
    std::vector<float> expected(inputs.size());
    (vector_math(Isa::kAvx2).*function.kernel)(expected.data(), inputs.data(),
                                               static_cast<int64_t>(inputs.size()));
    for (const Isa isa : supported_isas()) {
      for (int64_t count = 0; count < 40; ++count) {
        std::vector<float> results(41, -7.0f);
        (vector_math(isa).*function.kernel)(results.data(), inputs.data(), count);
        for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(results[i]), std::bit_cast<uint32_t>(expected[i]));
        }
        ASSERT_EQ(results[static_cast<size_t>(count)], -7.0f);
      }
    }
  }
}

TEST(VectorMath, GivesTheExactValuesSoftmaxRestsOn) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Isa isa : supported_isas()) {
    float values[] = {0.0f, -0.0f, -infinity, -200.0f, infinity};
    vector_math(isa).exp(values, values, 5);
    EXPECT_EQ(values[0], 1.0f);
    EXPECT_EQ(values[1], 1.0f);
    EXPECT_EQ(values[2], 0.0f);
    EXPECT_EQ(values[3], 0.0f);
    EXPECT_EQ(values[4], infinity);
    float one = 1.0f;
    vector_math(isa).log(&one, &one, 1);
    EXPECT_EQ(one, 0.0f);
  }
}

TEST(VectorMath, OddFunctionsAreExactlyOdd) {
  const std::vector<float> inputs = sampled_floats();
  for (const Isa isa : supported_isas()) {
    for (const auto kernel : {vector_math(isa).tanh, vector_math(isa).erf}) {
      for (size_t i = 0; i < inputs.size(); i += 7) {
        float pair[] = {inputs[i], -inputs[i]};
        kernel(pair, pair, 2);
        if (!std::isnan(pair[0])) {
          ASSERT_EQ(pair[0], -pair[1]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace jige::cpu
