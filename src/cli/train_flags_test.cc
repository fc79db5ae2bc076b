// That messages of `train` name flags which `jige train` has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "train/option_flags.h"

namespace jige::cli {
namespace {

TEST(TrainFlags, HaveEveryFlagThatMessagesName) {
  const auto command = make_train_command();
  Flags flags("train");
  command->declare(flags);
  const std::string help = flags.help();
  int named = 0;
  for (const train::OptionFlag& option : train::option_flags()) {
    const std::string text(option.flag);
    const std::regex word("--[a-z0-9-]+");
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at, ++named) {
      EXPECT_THAT(help, testing::ContainsRegex("(^|[ ,])" + at->str() + "[ \n]")) << option.option;
    }
  }
  EXPECT_GE(named, static_cast<int>(train::option_flags().size()));
}

TEST(TrainFlags, AreNamedByOptionOrByItsGroup) {
  EXPECT_EQ(train::flag_of("schedule.warmup_steps"), "--warmup");
  EXPECT_EQ(train::flag_of("lora.base"), "--from");
  EXPECT_EQ(train::flag_of("lora.dropout"), "--lora");
  EXPECT_EQ(train::flag_of("model.rope.theta"), "--from, --config or --size");
  EXPECT_EQ(train::flag_of("optimizer.epsilon"), "optimizer.epsilon");
}

}  // namespace
}  // namespace jige::cli
