#include "cli/constraint_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_path.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using Kind = grammar::ConstraintSource::Kind;

std::string message_of(const ConstraintFlags& flags) {
  const auto read = flags.read();
  EXPECT_FALSE(read);
  return read ? "" : read.error().message;
}

TEST(ConstraintFlags, SayWhatIsAskedFor) {
  EXPECT_FALSE(ConstraintFlags().read()->has_value());
  const auto read = [](const ConstraintFlags& flags) {
    const auto source = flags.read();
    EXPECT_TRUE(source) << source.error().message;
    return source && *source ? **source : grammar::ConstraintSource{};
  };
  EXPECT_EQ(read({.json_object = true}).kind, Kind::kJsonObject);
  const auto regex = read({.regex = "a+"});
  EXPECT_EQ(regex.kind, Kind::kRegex);
  EXPECT_EQ(regex.value, "a+");
  const auto choices = read({.choices = {"yes", "no"}});
  EXPECT_EQ(choices.kind, Kind::kChoices);
  EXPECT_EQ(choices.value, Json::array({"yes", "no"}));
}

TEST(ConstraintFlags, TakeASchemaAsItsTextOrFromAFile) {
  const std::string text = "\n {\"type\": \"integer\"}\n";
  const std::string path = test_path("schema.json");
  std::ofstream(path) << text;
  for (const std::string& given : {text, path}) {
    const auto source = ConstraintFlags{.json_schema = given}.read();
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ((*source)->kind, Kind::kJsonSchema);
    EXPECT_EQ((*source)->value, Json({{"type", "integer"}}));
  }
}

TEST(ConstraintFlags, TakeAGrammarAsItsTextOrFromAFile) {
  const std::string text = "root ::= \"a\"+\n";
  const std::string path = test_path("rules.gbnf");
  std::ofstream(path) << text;
  for (const std::string& given : {text, path}) {
    const auto source = ConstraintFlags{.grammar = given}.read();
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ((*source)->kind, Kind::kEbnf);
    EXPECT_EQ((*source)->value, text);
  }
}

TEST(ConstraintFlags, NameTheFlagThePlaceAndTheRemedy) {
  EXPECT_EQ(message_of({.regex = "a", .json_object = true}),
            "--json-object and --regex cannot both say what the answer is to be; leave one out");
  EXPECT_THAT(message_of({.json_schema = "{\"properties\":{\"a\":{\"not\":{}}}}"}),
              HasSubstr("--json-schema: #/properties/a/not is not supported; docs/serving.md"));
  EXPECT_THAT(message_of({.json_schema = "{\"type\":"}), HasSubstr("--json-schema"));
  EXPECT_THAT(message_of({.json_schema = "/nowhere/s.json"}),
              ::testing::AllOf(HasSubstr("--json-schema"), HasSubstr("/nowhere/s.json")));
  EXPECT_THAT(message_of({.json_schema = ""}), HasSubstr("--json-schema"));
  EXPECT_THAT(message_of({.regex = "(a"}), HasSubstr("--regex: "));
  EXPECT_THAT(message_of({.grammar = "root ::= x"}), HasSubstr("--grammar: the grammar at byte 9"));
  EXPECT_THAT(message_of({.grammar = "/nowhere/x.gbnf"}), HasSubstr("/nowhere/x.gbnf"));
  EXPECT_THAT(message_of({.choices = {"a", ""}}), HasSubstr("--choice: "));
}

}  // namespace
}  // namespace jige::cli
