// That messages of `train` name flags which `jige train` has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/train_flags.h"
#include "cli/train_rank_flags.h"
#include "train/option_flags.h"
#include "train/options.h"

namespace jige::cli {
namespace {

// Of `jige train` with these words besides what it must have.
Result<train::TrainOptions> options_with(std::vector<std::string> more,
                                         const std::vector<int>& gpus = {}) {
  TrainFlags train;
  Flags flags("train");
  train.declare(flags);
  std::vector<std::string> words = {"--data", "a.txt", "--out", "run"};
  words.insert(words.end(), more.begin(), more.end());
  JIGE_DO(flags.parse(words));
  return train.to_options(flags, gpus);
}

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

TEST(TrainFlags, AreRefusedByNameWhereNoModelCanBeSo) {
  const auto refused = [](const std::string& flag, const std::string& value) {
    const auto options = options_with({flag, value});
    return options ? std::string() : options.error().message;
  };
  EXPECT_EQ(refused("--layers", "4096"), "");
  EXPECT_EQ(refused("--layers", "4097"), "--layers: 4097 is out of range; it must be 0 to 4096");
  for (const char* flag : {"--width", "--heads", "--kv-heads", "--ffn"}) {
    EXPECT_THAT(refused(flag, "1048577"), testing::HasSubstr("is out of range")) << flag;
  }
  EXPECT_EQ(refused("--vocab-size", "0"), "");
  EXPECT_EQ(refused("--vocab-size", "261"), "");
  EXPECT_THAT(refused("--vocab-size", "260"),
              testing::HasSubstr("--vocab-size: 260 is out of range; it must be at least 261"));
}

// A loss for unequal use that the user does not want is another thing than one not spoken of.
TEST(TrainFlags, TellWhetherExpertsAreSpokenOf) {
  const auto balance = [](std::vector<std::string> more) {
    const auto options = options_with(std::move(more));
    EXPECT_TRUE(options) << (options ? "" : options.error().message);
    return options ? options->expert_balance : -1;
  };
  EXPECT_EQ(balance({}), std::nullopt);
  EXPECT_EQ(balance({"--expert-balance", "0"}), 0);
  EXPECT_EQ(balance({"--expert-balance", "0.01"}), 0.01);
}

TEST(TrainFlags, SkipGradientsWhereThatIsAskedFor) {
  const auto gate = [](std::vector<std::string> more) {
    const auto options = options_with(std::move(more));
    if (!options) return options.error().message;
    if (!options->row_gate) return std::string("none");
    return fmt::format("{} {} {}", options->row_gate->most,
                       train::skip_mode_names()[static_cast<size_t>(options->row_gate->mode)],
                       options->row_gate->rows);
  };
  EXPECT_EQ(gate({}), "none");
  EXPECT_EQ(gate({"--skip-converged", "0.25"}), "0.25 freeze 128");
  EXPECT_EQ(gate({"--skip-converged", "0.25", "--skip-mode", "scale", "--skip-rows", "64"}),
            "0.25 scale 64");
  EXPECT_THAT(gate({"--skip-rows", "64"}), testing::HasSubstr("give --skip-converged"));
}

TEST(TrainRankFlags, ShareOutGpusInTurnsUnlessOneIsNamed) {
  const auto seat = [](const char* name, int local_rank, int gpu_count) {
    DeviceFlags device;
    device.device = name;
    train::RankOptions ranks{.rank = 7, .size = 9, .local = 5, .local_rank = local_rank};
    share_out_gpus(gpu_count, device, ranks);
    const auto gpu = device.gpu_index();
    EXPECT_TRUE(gpu && *gpu);
    return std::pair(**gpu, ranks.on_device);
  };
  EXPECT_EQ(seat("cuda", 0, 2), std::pair(0, 3));
  EXPECT_EQ(seat("cuda", 3, 2), std::pair(1, 3));
  EXPECT_EQ(seat("cuda", 4, 8), std::pair(4, 1));
  EXPECT_EQ(seat("cuda", 4, 1), std::pair(0, 5));
  EXPECT_EQ(seat("cuda", 4, 0), std::pair(0, 5));  // which is refused when it is opened
  EXPECT_EQ(seat("cuda:1", 3, 2), std::pair(1, 5));
}

// With several GPUs there is a pipeline, with a device on each where no number is given.
TEST(TrainFlags, TrainByAScheduleOnSeveralGpus) {
  const auto devices = [](std::vector<std::string> more, int gpu_count) {
    std::vector<int> gpus;
    for (int gpu = 0; gpu < gpu_count; ++gpu) gpus.push_back(gpu);
    const auto options = options_with(std::move(more), gpus);
    EXPECT_TRUE(options) << (options ? "" : options.error().message);
    if (!options) return -1;
    EXPECT_EQ(options->gpus, gpus);
    return options->pipeline ? options->pipeline->devices : 0;
  };
  EXPECT_EQ(devices({}, 0), 0);
  EXPECT_EQ(devices({}, 1), 0);
  EXPECT_EQ(devices({}, 3), 3);
  EXPECT_EQ(devices({"--devices", "6"}, 3), 6);
  EXPECT_EQ(devices({"--device-memory", "1GiB"}, 1), 1);
  EXPECT_EQ(devices({"--device-memory", "1GiB"}, 2), 2);
}

// So that a new option is not forgotten here.
TEST(TrainFlags, AreKnownForEveryOptionInTheLog) {
  train::TrainOptions options;
  options.config.emplace();
  options.lora.emplace();
  options.base_format = ops::WeightFormat::kQ8;
  options.ranks.emplace();
  options.dropout = options.ffn_dropout = 0.1;
  options.dropout_pool = 16;
  options.row_gate.emplace();
  options.optimizer.moments = ops::MomentFormat::kQ8;
  options.dpo.emplace();
  options.data.token_layout = formats::TokenLayout::kRawU16;
  const std::set<std::string> without = {"optimizer.epsilon", "optimizer.bad_steps_in_row_max"};
  const Json json = train::options_json(options);
  const auto check = [&](const std::string& path) {
    EXPECT_EQ(train::flag_of(path) == path, without.contains(path)) << path;
  };
  int64_t count = 0;
  for (const auto& [name, value] : json.items()) {
    const bool group = value.is_object() && name != "model";
    if (!group) {
      check(name);
      continue;
    }
    for (const auto& [part, unused] : value.items()) check(name + "." + part);
    count += std::ssize(value);
  }
  EXPECT_GE(count, 20);
}

TEST(TrainFlags, AreNamedByOptionOrByItsGroup) {
  EXPECT_EQ(train::flag_of("schedule.warmup_steps"), "--warmup");
  EXPECT_EQ(train::flag_of("lora.unknown"), "--lora");
  EXPECT_EQ(train::flag_of("model.rope.theta"), "--from, --config or --size");
  EXPECT_EQ(train::flag_of("optimizer.epsilon"), "optimizer.epsilon");
}

}  // namespace
}  // namespace jige::cli
