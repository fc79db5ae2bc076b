#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace jige {
namespace {

constexpr Code kCodes[] = {Code::kInternal, Code::kInvalidArgument, Code::kNotFound,
                           Code::kCorrupt,  Code::kUnsupported,     Code::kExhausted,
                           Code::kIo,       Code::kUnavailable,     Code::kCancelled};

TEST(Code, HasItsOwnNameAndExitCode) {
  std::set<std::string_view> names;
  std::set<int> exits;
  for (const Code code : kCodes) {
    names.insert(code_name(code));
    exits.insert(exit_code(code));
  }
  EXPECT_EQ(names.size(), std::size(kCodes));
  EXPECT_EQ(exits.size(), std::size(kCodes));
  EXPECT_FALSE(exits.contains(0));
  EXPECT_EQ(code_name(Code::kNotFound), "not_found");
  EXPECT_EQ(exit_code(Code::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(Code::kCancelled), 130);
}

Result<int> positive(int value) {
  if (value <= 0) return fail(Code::kInvalidArgument, "{} is not positive", value);
  return value;
}

Result<int> sum_of_positives(int a, int b, int& evaluations) {
  JIGE_TRY(const int first, positive(a));
  ++evaluations;
  JIGE_TRY(const int second, positive(b));
  ++evaluations;
  return first + second;
}

Status all_positive(std::initializer_list<int> values) {
  for (const int value : values) JIGE_DO(positive(value).map([](int) {}));
  return {};
}

TEST(Try, DeclaresTheValueOrReturnsTheError) {
  int evaluations = 0;
  EXPECT_EQ(sum_of_positives(2, 3, evaluations).value(), 5);
  EXPECT_EQ(evaluations, 2);
  evaluations = 0;
  const auto failed = sum_of_positives(2, -3, evaluations);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(evaluations, 1);
  EXPECT_EQ(failed.error().code, Code::kInvalidArgument);
  EXPECT_EQ(failed.error().message, "-3 is not positive");
}

Result<std::unique_ptr<int>> moved() {
  const auto make = [](int value) -> Result<std::unique_ptr<int>> {
    return std::make_unique<int>(value);
  };
  JIGE_TRY(auto a, make(1));
  JIGE_TRY(auto b, make(2));  // a second one in the same scope
  *a += *b;
  return a;
}

TEST(Try, MovesWhatCannotBeCopied) { EXPECT_EQ(**moved(), 3); }

TEST(Do, StopsAtTheFirstError) {
  EXPECT_TRUE(all_positive({1, 2, 3}).has_value());
  EXPECT_EQ(all_positive({1, -2, -3}).error().message, "-2 is not positive");
}

TEST(WithContext, PrefixesTheMessageAndKeepsTheCode) {
  Status status = fail(Code::kIo, "{}: no {{braces}}", "a");
  status = with_context(std::move(status.error()), "loading {}", "model");
  EXPECT_EQ(status.error().code, Code::kIo);
  EXPECT_EQ(status.error().message, "loading model: a: no {braces}");
}

}  // namespace
}  // namespace jige
